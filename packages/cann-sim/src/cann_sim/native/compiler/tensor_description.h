// Descriptions of tensors and of buffers, with which torch_npu calls compiled operators.
#pragma once

#include <acl/acl_base_mdl.h>
#include <acl/acl_base_rt.h>

#include <cstdint>
#include <string>
#include <vector>

// `format` and `sizes` are those of the storage where torch_npu has set them, `view_sizes` what a user sees.
struct aclTensorDesc {
  aclDataType type;
  aclFormat format;
  std::vector<int64_t> sizes;
  std::vector<int64_t> view_sizes;
  std::string name;
  bool on_host = false;
};

// Memory of the caller.
struct aclDataBuffer {
  void* address;
  size_t bytes;
};
