#include "argument.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "coverage.h"
#include "data_type.h"
#include "refusal.h"

namespace cann_sim::operators {

namespace {

Refusal NullArgument(const char* name) {
  return Refusal(std::string("argument '") + name + "': expected a value, found a null pointer", kStatusNullArgument);
}

template <class T>
const T& NotNull(const T* object, const char* name) {
  if (object == nullptr) {
    throw NullArgument(name);
  }
  return *object;
}

bool IsPlainFormat(aclFormat format) {
  switch (format) {
    case ACL_FORMAT_UNDEFINED:
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NC:
    case ACL_FORMAT_NCL:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NCDHW:
      return true;
    default:
      return false;
  }
}

}  // namespace

Tensor::Tensor(const aclTensor* tensor, const char* name) : name_(name), view_(NotNull(tensor, name)) {
  try {
    dtype_ = ScalarTypeOf(view_.type);
    NoteDtype(dtype_);
  } catch (const Refusal& refusal) {
    throw Refusal(std::string("argument '") + name + "': " + refusal.what());
  }
  if (!IsPlainFormat(view_.format)) {
    throw Refusal(std::string("argument '") + name + "': expected a plain (ND) format, found aclFormat " +
                  std::to_string(static_cast<int>(view_.format)) +
                  "; set torch.npu.config.allow_internal_format = False");
  }
}

int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int dim = 0; dim < view_.rank; ++dim) {
    count *= view_.sizes[dim];
  }
  return count;
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  for (int dim = view_.rank - 1; dim >= 0; --dim) {
    if (view_.sizes[dim] != 1 && view_.strides[dim] != step) {
      return numel() == 0;
    }
    step *= view_.sizes[dim];
  }
  return true;
}

Tensor::operator at::Tensor() const {
  char* start = static_cast<char*>(view_.data) + view_.offset * static_cast<int64_t>(c10::elementSize(dtype_));
  return at::from_blob(start, sizes(), strides(), at::TensorOptions().dtype(dtype_));
}

at::Tensor Tensor::Widened() const {
  at::Tensor tensor = *this;
  return dtype_ == c10::ScalarType::Double ? tensor : tensor.to(c10::ScalarType::Float);
}

void Tensor::Store(const at::Tensor& result) const { at::Tensor(*this).copy_(result); }

void ResizableTensor::SetViewShape(c10::IntArrayRef sizes) const {
  object_->rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), object_->sizes);
}

TensorList::TensorList(const aclTensorList* list, const char* name) : name_(name) {
  for (const aclTensor* tensor : NotNull(list, name).tensors) {
    tensors_.emplace_back(tensor, name);
  }
}

std::vector<at::Tensor> TensorList::AtTensors() const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(tensors_.size());
  for (const OptionalTensor& tensor : tensors_) {
    tensors.push_back(tensor);
  }
  return tensors;
}

Scalar::Scalar(const aclScalar* scalar, const char* name) : name_(name), value_(NotNull(scalar, name).value) {}

IntArray::IntArray(const aclIntArray* array, const char* name) : name_(name), values_(NotNull(array, name).values) {}

BoolArray::BoolArray(const aclBoolArray* array, const char* name) : values_(NotNull(array, name).values) {}

Text::Text(const char* text, const char* name) : name_(name) {
  if (text == nullptr) {
    throw NullArgument(name);
  }
  value_ = text;
}

}  // namespace cann_sim::operators
