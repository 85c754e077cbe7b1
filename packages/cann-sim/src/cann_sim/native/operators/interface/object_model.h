// The opaque objects of the aclnn interface. torch_npu creates them for one call and destroys them after the launch, so
// a kernel that runs later must own copies of what it needs (see argument.h).
#pragma once

#include <acl/acl_base.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cann_sim::operators {

// An aclnn tensor has at most this many dimensions.
constexpr int kMaxRank = 8;

// Up to kMaxRank numbers. Only the first `count` are set, and copied: every operator call copies its tensors.
class Dimensions {
 public:
  Dimensions() = default;
  Dimensions(const Dimensions& other) : count_(other.count_) { std::copy_n(other.values_, count_, values_); }
  Dimensions& operator=(const Dimensions& other) {
    count_ = other.count_;
    std::copy_n(other.values_, count_, values_);
    return *this;
  }

  void Assign(const int64_t* values, uint64_t count) {
    count_ = static_cast<int>(count);
    std::copy_n(values, count, values_);
  }
  int count() const { return count_; }
  int64_t& operator[](int index) { return values_[index]; }
  int64_t operator[](int index) const { return values_[index]; }
  const int64_t* data() const { return values_; }
  operator c10::IntArrayRef() const { return {values_, static_cast<size_t>(count_)}; }

 private:
  int count_ = 0;
  int64_t values_[kMaxRank];
};

// In elements, of a dense tensor in the order of its dimensions.
inline Dimensions ContiguousStrides(const Dimensions& sizes) {
  Dimensions strides = sizes;
  int64_t step = 1;
  for (int dim = sizes.count() - 1; dim >= 0; --dim) {
    strides[dim] = step;
    step *= sizes[dim];
  }
  return strides;
}

}  // namespace cann_sim::operators

// A strided view of device memory that the caller owns. `data` is the start of the storage, `offset` counts elements.
struct aclTensor {
  void* data = nullptr;
  aclDataType type = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  int64_t offset = 0;
  cann_sim::operators::Dimensions sizes, strides;
  // Dimensions of the storage, which those of the view do not say where the format is not a plain one.
  cann_sim::operators::Dimensions storage_sizes;

  int rank() const { return sizes.count(); }
  // Whether the view has no gaps in memory, in the order of its dimensions, as a tensor without elements always does.
  bool is_contiguous() const {
    const cann_sim::operators::Dimensions dense = cann_sim::operators::ContiguousStrides(sizes);
    bool fits = true;
    for (int dim = 0; dim < rank(); ++dim) {
      if (sizes[dim] == 0) {
        return true;
      }
      fits = fits && (sizes[dim] == 1 || strides[dim] == dense[dim]);
    }
    return fits;
  }
  // torch_npu passes a tensor [0] for a missing tensor or list.
  bool is_placeholder() const { return rank() == 1 && sizes[0] == 0; }
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
