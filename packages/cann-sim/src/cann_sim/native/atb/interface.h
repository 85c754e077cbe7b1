// The C++ interface of the Ascend Transformer Boost library (ATB, libatb.so) as far as torch_npu's operators use it: layouts,
// virtual functions and mangled names have to be those that torch_npu was compiled against, members are in their order.
#pragma once

#include <acl/acl.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)
namespace atb {

using Status = int32_t;
constexpr Status kOk = 0;
constexpr Status kInvalidParameter = 1;

struct Dims {
  int64_t dims[8];
  uint64_t dimNum = 0;
};

struct TensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  Dims shape;
};

// Memory of the device or of the host, always contiguous. An absent tensor has no dtype. The memory is the caller's.
struct Tensor {
  TensorDesc desc;
  void* deviceData = nullptr;
  void* hostData = nullptr;
  uint64_t dataSize = 0;
};

// A list of at most 64 values, in place; a longer one is in `heap_`. Made by the caller, only read here.
template <class T>
class SVector {
 public:
  size_t size() const { return size_; }
  const T& operator[](size_t index) const {
    if (index >= size_) {
      throw std::out_of_range("list of " + std::to_string(size_) + " ATB tensors: no number " + std::to_string(index));
    }
    return heap_ != nullptr ? heap_[index] : in_place_[index];
  }

 private:
  size_t capacity_ = 0;
  size_t size_ = 0;
  T in_place_[65];
  T* heap_ = nullptr;
};

struct VariantPack {
  SVector<Tensor> inTensors;
  SVector<Tensor> outTensors;
};

// Says on which stream the operations run. torch_npu has one for all streams, and sets the stream before each call.
class Context {
 public:
  virtual ~Context() = default;
  virtual Status SetExecuteStream(aclrtStream stream) = 0;
  virtual aclrtStream GetExecuteStream() const = 0;
  virtual Status SetAsyncTilingCopyStatus(bool enable) = 0;
  virtual bool GetAsyncTilingCopyStatus() const = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string GetName() const = 0;
  virtual Status InferShape(const SVector<TensorDesc>& inputs, SVector<TensorDesc>& outputs) const = 0;
  virtual uint32_t GetInputNum() const = 0;
  virtual uint32_t GetOutputNum() const = 0;
  // Checks the tensors and says how much workspace `Execute` needs for them.
  virtual Status Setup(const VariantPack& tensors, uint64_t& workspaceSize, Context* context) = 0;
  virtual Status Execute(const VariantPack& tensors, uint8_t* workspace, uint64_t workspaceSize, Context* context) = 0;
};

// The caller owns what is created and gives it back to the destroying function.
Status CreateContext(Context** context);
Status DestroyContext(Context* context);
template <class Parameters>
Status CreateOperation(const Parameters& parameters, Operation** operation);
Status DestroyOperation(Operation* operation);

class Utils {
 public:
  // Bytes that the elements of the tensor take; 0 for one without a dtype.
  static uint64_t GetTensorSize(const Tensor& tensor);
};

}  // namespace atb
#pragma GCC visibility pop
