// Arguments of an aclnn operator as an operator definition sees them: owned copies that outlive torch_npu's objects, so
// that a kernel may keep them for as long as a captured graph lives. The memory of a Tensor stays the caller's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "object_model.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// A required tensor. Converts to a CPU at::Tensor over the same simulated device memory.
class Tensor {
 public:
  using Abi = const aclTensor*;

  Tensor() = default;
  Tensor(const aclTensor* tensor, const char* name);

  const char* name() const { return name_; }
  c10::ScalarType dtype() const { return dtype_; }
  int rank() const { return view_.rank(); }
  c10::IntArrayRef sizes() const { return view_.sizes; }
  c10::IntArrayRef strides() const { return view_.strides; }
  // Size of a dimension; a negative one counts from the end.
  int64_t size(int dim) const { return view_.sizes[dim < 0 ? dim + rank() : dim]; }
  int64_t numel() const;
  // As those of aclTensor.
  bool is_contiguous() const { return view_.is_contiguous(); }
  bool is_placeholder() const { return view_.is_placeholder(); }
  // Whether torch computes on it as a floating point (not complex) dtype.
  bool is_floating_point() const { return c10::isFloatingType(dtype_); }

  // Over the same memory; of a tensor in the NZ format a copy in plain order.
  operator at::Tensor() const;
  bool is_nz() const { return view_.format == ACL_FORMAT_FRACTAL_NZ; }
  // The same values in float32 (float64 stays), as the device's kernels hold them while computing.
  at::Tensor Widened() const;
  // Stores `result`, rounding once to the dtype of this tensor.
  void Store(const at::Tensor& result) const;

 private:
  // The blocks of a tensor in the NZ format, as stored in memory.
  at::Tensor Blocks() const;

  const char* name_ = "";
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  aclTensor view_;
};

// A tensor that may be absent.
class OptionalTensor {
 public:
  using Abi = const aclTensor*;

  OptionalTensor() = default;
  OptionalTensor(const aclTensor* tensor, const char* name) : name_(name) {
    if (tensor != nullptr) {
      tensor_.emplace(tensor, name);
    }
  }
  OptionalTensor(const Tensor& tensor)  // NOLINT: a tensor where one may be absent
      : name_(tensor.name()), tensor_(tensor) {}

  explicit operator bool() const { return tensor_.has_value(); }
  const char* name() const { return name_; }
  // Throws where absent.
  const Tensor& operator*() const { return tensor_.value(); }
  const Tensor* operator->() const { return &tensor_.value(); }
  // An undefined at::Tensor where absent.
  operator at::Tensor() const { return tensor_ ? at::Tensor(*tensor_) : at::Tensor(); }
  // As ATen takes optional operands; Widened as Tensor::Widened.
  std::optional<at::Tensor> Value() const { return tensor_ ? std::optional<at::Tensor>(*tensor_) : std::nullopt; }
  std::optional<at::Tensor> Widened() const { return tensor_ ? std::optional(tensor_->Widened()) : std::nullopt; }

 private:
  const char* name_ = "";
  std::optional<Tensor> tensor_;
};

// A required tensor whose view shape the operator sets after the launch (data-dependent results).
class ResizableTensor : public Tensor {
 public:
  using Abi = aclTensor*;

  ResizableTensor(aclTensor* tensor, const char* name) : Tensor(tensor, name), object_(tensor) {}

  // Sets the shape that aclGetViewShape reports. Only valid until the launch call has returned.
  void SetViewShape(c10::IntArrayRef sizes) const;

 private:
  aclTensor* object_;
};

// A list of tensors; elements torch_npu left undefined are absent.
class TensorList {
 public:
  using Abi = const aclTensorList*;

  TensorList(const aclTensorList* list, const char* name);

  const char* name() const { return name_; }
  size_t size() const { return tensors_.size(); }
  const OptionalTensor& operator[](size_t index) const { return tensors_[index]; }
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  std::vector<at::Tensor> AtTensors() const;

 private:
  const char* name_;
  std::vector<OptionalTensor> tensors_;
};

// A required host scalar.
class Scalar {
 public:
  using Abi = const aclScalar*;

  Scalar(const aclScalar* scalar, const char* name);

  const char* name() const { return name_; }
  const c10::Scalar& value() const { return value_; }
  operator const c10::Scalar&() const { return value_; }

 private:
  const char* name_;
  c10::Scalar value_;
};

// A required list of host scalars.
class ScalarList {
 public:
  using Abi = const aclScalarList*;

  ScalarList(const aclScalarList* list, const char* name);

  const char* name() const { return name_; }
  const std::vector<c10::Scalar>& values() const { return values_; }

 private:
  const char* name_;
  std::vector<c10::Scalar> values_;
};

// A host scalar that may be absent.
class OptionalScalar {
 public:
  using Abi = const aclScalar*;

  OptionalScalar(const aclScalar* scalar, const char* /*name*/) {
    if (scalar != nullptr) {
      value_ = scalar->value;
    }
  }

  operator const std::optional<c10::Scalar>&() const { return value_; }

 private:
  std::optional<c10::Scalar> value_;
};

// A required list of host integers.
class IntArray {
 public:
  using Abi = const aclIntArray*;

  IntArray(const aclIntArray* array, const char* name);

  const char* name() const { return name_; }
  const std::vector<int64_t>& values() const { return values_; }
  operator c10::IntArrayRef() const { return values_; }

 private:
  const char* name_;
  std::vector<int64_t> values_;
};

// A list of host integers that may be absent.
class OptionalIntArray {
 public:
  using Abi = const aclIntArray*;

  OptionalIntArray(const aclIntArray* array, const char* name) : present_(array != nullptr), name_(name) {
    if (present_) {
      values_ = array->values;
    }
  }

  explicit operator bool() const { return present_; }
  const char* name() const { return name_; }
  const std::vector<int64_t>& values() const { return values_; }

 private:
  bool present_;
  const char* name_;
  std::vector<int64_t> values_;
};

// A required list of host booleans.
class BoolArray {
 public:
  using Abi = const aclBoolArray*;

  BoolArray(const aclBoolArray* array, const char* name);

  const std::vector<bool>& values() const { return values_; }

 private:
  std::vector<bool> values_;
};

// A list of host booleans that may be absent.
class OptionalBoolArray {
 public:
  using Abi = const aclBoolArray*;

  OptionalBoolArray(const aclBoolArray* array, const char* name) : present_(array != nullptr), name_(name) {
    if (present_) {
      values_ = array->values;
    }
  }

  explicit operator bool() const { return present_; }
  const char* name() const { return name_; }
  const std::vector<bool>& values() const { return values_; }

 private:
  bool present_;
  const char* name_;
  std::vector<bool> values_;
};

// A required C string.
class Text {
 public:
  using Abi = const char*;

  Text(const char* text, const char* name);

  const char* name() const { return name_; }
  const std::string& value() const { return value_; }

 private:
  const char* name_;
  std::string value_;
};

// A C string that may be absent; empty then.
class OptionalText {
 public:
  using Abi = const char*;

  OptionalText(const char* text, const char* name) : name_(name), value_(text == nullptr ? "" : text) {}

  const char* name() const { return name_; }
  const std::string& value() const { return value_; }

 private:
  const char* name_;
  std::string value_;
};

// A number that crosses the C interface as itself.
template <class T>
class Number {
 public:
  using Abi = T;

  Number(T value, const char* name) : name_(name), value_(value) {}

  const char* name() const { return name_; }
  T value() const { return value_; }
  operator T() const { return value_; }

 private:
  const char* name_;
  T value_;
};

using Int = Number<int64_t>;
using Int32 = Number<int32_t>;
using Int8 = Number<int8_t>;
using Double = Number<double>;
using Float = Number<float>;
using Bool = Number<bool>;
using DataType = Number<aclDataType>;

// Allows a temporary where ATen takes a `Tensor&` to write to; valid until the end of the full expression.
inline at::Tensor& Out(at::Tensor&& tensor) { return tensor; }

}  // namespace cann_sim::operators
#pragma GCC visibility pop
