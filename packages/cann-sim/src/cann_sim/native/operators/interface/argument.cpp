#include "argument.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "../../runtime/launch.h"
#include "../coverage/coverage.h"
#include "data_type.h"
#include "launch_accesses.h"
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

// The storage of a tensor in the NZ format is [batch..., columns / c0, rows / r0, r0, c0], or has the dimensions of the view where
// torch_npu only says that it is in that format. A view shows all of a matrix or its transpose.
bool HasBlocks(const aclTensor& view) { return view.storage_sizes.count() == view.rank() + 2; }

bool ShowsTranspose(const aclTensor& view) {
  return view.strides[view.rank() - 2] == 1 && view.strides[view.rank() - 1] == view.sizes[view.rank() - 2] &&
         !(view.strides[view.rank() - 1] == 1 && view.strides[view.rank() - 2] == view.sizes[view.rank() - 1]);
}

void RequireNz(const aclTensor& view, const char* name) {
  const bool fits = view.rank() >= 2 && view.offset == 0 && (HasBlocks(view) || view.storage_sizes.count() == view.rank());
  if (!fits) {
    throw Refusal(std::string("argument '") + name +
                  "': expected the whole of a tensor in the NZ format, found a part of one");
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
  if (!IsPlainFormat(view_.format) && !is_nz()) {
    throw Refusal(std::string("argument '") + name + "': expected a plain (ND) format or FRACTAL_NZ, found aclFormat " +
                  std::to_string(static_cast<int>(view_.format)) +
                  "; set torch.npu.config.allow_internal_format = False");
  }
  if (is_nz()) {
    RequireNz(view_, name);
  }
  if (MemoryIsChecked()) {
    NoteAccess(view_, dtype_, name);
  }
}

int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int dim = 0; dim < view_.rank(); ++dim) {
    count *= view_.sizes[dim];
  }
  return count;
}

at::Tensor Tensor::Blocks() const {
  return at::from_blob(view_.data, view_.storage_sizes, at::TensorOptions().dtype(dtype_));
}

Tensor::operator at::Tensor() const {
  if (is_nz() && HasBlocks(view_)) {
    const bool transposed = ShowsTranspose(view_);
    const at::Tensor rows = Blocks().movedim(-4, -2).flatten(-4, -3).flatten(-2, -1);
    const at::Tensor plain = rows.narrow(-2, 0, size(transposed ? -1 : -2)).narrow(-1, 0, size(transposed ? -2 : -1));
    return transposed ? plain.contiguous().transpose(-1, -2) : plain.contiguous();
  }
  char* start = static_cast<char*>(view_.data) + view_.offset * static_cast<int64_t>(c10::elementSize(dtype_));
  return at::from_blob(start, sizes(), strides(), at::TensorOptions().dtype(dtype_));
}

at::Tensor Tensor::Widened() const {
  at::Tensor tensor = *this;
  return dtype_ == c10::ScalarType::Double ? tensor : tensor.to(c10::ScalarType::Float);
}

void Tensor::Store(const at::Tensor& result) const {
  if (!is_nz() || !HasBlocks(view_)) {
    at::Tensor(*this).copy_(result);
    return;
  }
  const at::Tensor blocks = Blocks().zero_();
  // A copy: of a single column of blocks the rows would be the blocks' own memory.
  const at::Tensor rows = blocks.movedim(-4, -2).flatten(-4, -3).flatten(-2, -1).clone();
  const bool transposed = ShowsTranspose(view_);
  const at::Tensor plain = transposed ? result.transpose(-1, -2) : result;
  rows.narrow(-2, 0, plain.size(-2)).narrow(-1, 0, plain.size(-1)).copy_(plain);
  blocks.copy_(rows.unflatten(-1, {blocks.size(-4), blocks.size(-1)}).unflatten(-3, {blocks.size(-3), blocks.size(-2)}).movedim(-2, -4));
}

void ResizableTensor::SetViewShape(c10::IntArrayRef sizes) const {
  object_->sizes.Assign(sizes.data(), sizes.size());
}

TensorList::TensorList(const aclTensorList* list, const char* name) : name_(name) {
  const std::vector<aclTensor*>& tensors = NotNull(list, name).tensors;
  tensors_.reserve(tensors.size());
  for (const aclTensor* tensor : tensors) {
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

ScalarList::ScalarList(const aclScalarList* list, const char* name) : name_(name) {
  for (const aclScalar* scalar : NotNull(list, name).scalars) {
    values_.push_back(NotNull(scalar, name).value);
  }
}

IntArray::IntArray(const aclIntArray* array, const char* name) : name_(name), values_(NotNull(array, name).values) {}

BoolArray::BoolArray(const aclBoolArray* array, const char* name) : values_(NotNull(array, name).values) {}

Text::Text(const char* text, const char* name) : name_(name) {
  if (text == nullptr) {
    throw NullArgument(name);
  }
  value_ = text;
}

}  // namespace cann_sim::operators
