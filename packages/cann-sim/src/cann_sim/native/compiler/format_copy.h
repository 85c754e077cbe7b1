// Copies between the plain order of a matrix and the NZ order, for which torch_npu calls the operator compiler.
#pragma once

#include <acl/acl_base_rt.h>

#include <string>

struct aclTensorDesc;
struct aclDataBuffer;

namespace cann_sim {

// The name, in static memory, of the operator of this name where it is such a copy, else null.
const char* FindFormatCopy(const char* operator_type);

// Launches the copy on `stream`. Refuses formats other than the plain ones and FRACTAL_NZ.
aclError LaunchFormatCopy(const char* name, const aclTensorDesc& from, const aclDataBuffer& source,
                          const aclTensorDesc& to, const aclDataBuffer& target, aclrtStream stream);

}  // namespace cann_sim
