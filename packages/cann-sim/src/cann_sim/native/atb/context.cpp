// The context of ATB, and the size of a tensor.

#include <atomic>

#include "../operators/interface/data_type.h"
#include "interface.h"

namespace {

class SimulatedContext : public atb::Context {
 public:
  atb::Status SetExecuteStream(aclrtStream stream) override {
    stream_ = stream;
    return atb::kOk;
  }
  aclrtStream GetExecuteStream() const override { return stream_; }
  atb::Status SetAsyncTilingCopyStatus(bool enable) override {
    copies_asynchronously_ = enable;
    return atb::kOk;
  }
  bool GetAsyncTilingCopyStatus() const override { return copies_asynchronously_; }

 private:
  std::atomic<aclrtStream> stream_{nullptr};
  std::atomic<bool> copies_asynchronously_{false};
};

}  // namespace

namespace atb {

Status CreateContext(Context** context) {
  *context = new SimulatedContext;
  return kOk;
}

Status DestroyContext(Context* context) {
  delete context;
  return kOk;
}

uint64_t Utils::GetTensorSize(const Tensor& tensor) {
  if (tensor.desc.dtype == ACL_DT_UNDEFINED) {
    return 0;
  }
  uint64_t size = c10::elementSize(cann_sim::operators::ScalarTypeOf(tensor.desc.dtype));
  for (uint64_t dim = 0; dim < tensor.desc.shape.dimNum; ++dim) {
    size *= static_cast<uint64_t>(tensor.desc.shape.dims[dim]);
  }
  return size;
}

}  // namespace atb
