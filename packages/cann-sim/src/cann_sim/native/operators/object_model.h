// The opaque objects of the aclnn interface. torch_npu creates them for one call and destroys them after the launch, so
// a kernel that runs later must own copies of what it needs (see argument.h).
#pragma once

#include <acl/acl_base.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <vector>

namespace cann_sim::operators {

// An aclnn tensor has at most this many dimensions.
constexpr int kMaxRank = 8;

}  // namespace cann_sim::operators

// A strided view of device memory that the caller owns. `data` is the start of the storage, `offset` counts elements.
struct aclTensor {
  void* data = nullptr;
  aclDataType type = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  int rank = 0;
  int64_t offset = 0;
  int64_t sizes[cann_sim::operators::kMaxRank] = {};
  int64_t strides[cann_sim::operators::kMaxRank] = {};
  // Dimensions of the storage, which those of the view do not say where the format is not a plain one.
  int storage_rank = 0;
  int64_t storage_sizes[cann_sim::operators::kMaxRank] = {};
};

// Owns its tensors: destroying the list destroys them.
struct aclTensorList {
  std::vector<aclTensor*> tensors;
};

struct aclScalar {
  c10::Scalar value;
  aclDataType type = ACL_DT_UNDEFINED;
};

// Owns its scalars.
struct aclScalarList {
  std::vector<aclScalar*> scalars;
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<bool> values;
};
