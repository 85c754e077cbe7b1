#include "object_model.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <string>

#include "../../runtime/launch.h"
#include "data_type.h"
#include "refusal.h"

namespace {

using cann_sim::operators::kMaxRank;
using cann_sim::operators::kStatusInvalidArgument;
using cann_sim::operators::kStatusOk;

template <class T>
c10::Scalar Read(const void* value) {
  return c10::Scalar(*static_cast<const T*>(value));
}

c10::Scalar ReadScalar(const void* value, aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return Read<float>(value);
    case ACL_FLOAT16: return Read<c10::Half>(value);
    case ACL_BF16: return Read<c10::BFloat16>(value);
    case ACL_DOUBLE: return Read<double>(value);
    case ACL_INT8: return Read<int8_t>(value);
    case ACL_INT16: return Read<int16_t>(value);
    case ACL_INT32: return Read<int32_t>(value);
    case ACL_INT64: return Read<int64_t>(value);
    case ACL_UINT8: return Read<uint8_t>(value);
    case ACL_BOOL: return Read<bool>(value);
    case ACL_COMPLEX64: return Read<c10::complex<float>>(value);
    case ACL_COMPLEX128: return Read<c10::complex<double>>(value);
    default:
      throw cann_sim::operators::Refusal(std::string("scalar of data type ") +
                                         cann_sim::operators::NameOf(type) + " is not simulated");
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, aclDataType type, const int64_t* strides,
                           int64_t offset, aclFormat format, const int64_t* storage_dims, uint64_t storage_dims_num,
                           void* data) {
  if (view_dims_num > static_cast<uint64_t>(kMaxRank)) {
    cann_sim::SetErrorMessage("aclCreateTensor: expected at most " + std::to_string(kMaxRank) +
                              " dimensions, found " + std::to_string(view_dims_num));
    return nullptr;
  }
  auto* tensor = new aclTensor;
  tensor->data = data;
  tensor->type = type;
  tensor->format = format;
  tensor->offset = offset;
  tensor->sizes.Assign(view_dims, view_dims_num);
  if (storage_dims != nullptr && storage_dims_num <= static_cast<uint64_t>(kMaxRank)) {
    tensor->storage_sizes.Assign(storage_dims, storage_dims_num);
  }
  if (strides != nullptr) {
    tensor->strides.Assign(strides, view_dims_num);
  } else {
    tensor->strides = cann_sim::operators::ContiguousStrides(tensor->sizes);
  }
  return tensor;
}

int aclDestroyTensor(const aclTensor* tensor) {
  delete tensor;
  return kStatusOk;
}

// The two arrays belong to the caller, who frees them with delete[].
int aclGetViewShape(const aclTensor* tensor, int64_t** dims, uint64_t* dims_num) {
  if (tensor == nullptr || dims == nullptr || dims_num == nullptr) {
    return cann_sim::operators::kStatusNullArgument;
  }
  *dims = new int64_t[std::max(tensor->rank(), 1)];
  std::copy_n(tensor->sizes.data(), tensor->rank(), *dims);
  *dims_num = static_cast<uint64_t>(tensor->rank());
  return kStatusOk;
}

aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t size) {
  auto* list = new aclTensorList;
  for (uint64_t index = 0; index < size; ++index) {
    list->tensors.push_back(const_cast<aclTensor*>(tensors[index]));
  }
  return list;
}

int aclDestroyTensorList(const aclTensorList* list) {
  if (list != nullptr) {
    for (aclTensor* tensor : list->tensors) {
      delete tensor;
    }
  }
  delete list;
  return kStatusOk;
}

aclScalar* aclCreateScalar(void* value, aclDataType type) {
  try {
    return new aclScalar{ReadScalar(value, type), type};
  } catch (const cann_sim::operators::Refusal& refusal) {
    cann_sim::SetErrorMessage(std::string("aclCreateScalar: ") + refusal.what());
    return nullptr;
  }
}

int aclDestroyScalar(const aclScalar* scalar) {
  delete scalar;
  return kStatusOk;
}

aclScalarList* aclCreateScalarList(const aclScalar* const* scalars, uint64_t size) {
  auto* list = new aclScalarList;
  for (uint64_t index = 0; index < size; ++index) {
    list->scalars.push_back(const_cast<aclScalar*>(scalars[index]));
  }
  return list;
}

int aclDestroyScalarList(const aclScalarList* list) {
  if (list != nullptr) {
    for (aclScalar* scalar : list->scalars) {
      delete scalar;
    }
  }
  delete list;
  return kStatusOk;
}

aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size) {
  return new aclIntArray{{values, values + size}};
}

int aclDestroyIntArray(const aclIntArray* array) {
  delete array;
  return kStatusOk;
}

aclFloatArray* aclCreateFloatArray(const float* values, uint64_t size) {
  return new aclFloatArray{{values, values + size}};
}

int aclDestroyFloatArray(const aclFloatArray* array) {
  delete array;
  return kStatusOk;
}

aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t size) {
  return new aclBoolArray{std::vector<bool>(values, values + size)};
}

int aclDestroyBoolArray(const aclBoolArray* array) {
  delete array;
  return kStatusOk;
}

}  // extern "C"
#pragma GCC visibility pop
