// What CANN declares of conditional tasks. torch_npu has these declarations in its headers from 2.12 on; one before that never
// looks up the functions, and gets the same library.
#pragma once

#include <acl/acl_rt.h>

#include <cstdint>

#ifdef CANN_SIM_DECLARES_CONDITIONAL_TASKS

// NOLINTBEGIN: names, values and layout are those of CANN's interface.
#define ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING 107046

using aclmdlRICondHandle = void*;

enum aclmdlRICondHandleFlag { ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT = 1 };

enum aclmdlRICondTaskType {
  ACL_MODEL_RI_COND_TYPE_IF = 0,
  ACL_MODEL_RI_COND_TYPE_WHILE = 1,
  ACL_MODEL_RI_COND_TYPE_SWITCH = 2,
};

struct aclmdlRICondTaskParams {
  aclmdlRICondHandle handle;
  aclmdlRICondTaskType type;
  uint32_t size;
  aclmdlRI* modelRIArray;
};

extern "C" {

ACL_FUNC_VISIBILITY aclError aclmdlRICondHandleCreate(aclmdlRI graph, uint32_t default_value, aclmdlRICondHandleFlag flag,
                                                      aclmdlRICondHandle* handle);
ACL_FUNC_VISIBILITY aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t** value);
ACL_FUNC_VISIBILITY aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams parameters, aclrtStream stream, uint32_t flags);
ACL_FUNC_VISIBILITY aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI graph, aclmdlRICaptureMode mode);

}  // extern "C"
// NOLINTEND

#endif
