#include "operation.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

extern "C" const char* aclGetRecentErrMsg();
extern "C" int aclDestroyAclOpExecutor(aclOpExecutor* executor);

namespace cann_sim::atb_library {

namespace {

struct DestroyExecutor {
  void operator()(aclOpExecutor* executor) const { aclDestroyAclOpExecutor(executor); }
};
using Executor = std::unique_ptr<aclOpExecutor, DestroyExecutor>;

// torch_npu drops the status of an execution outside a capture, and the reason of one that was refused. An exception reaches
// the caller with its reason on both ways.
int ThrowIfFailed(int status, const char* name) {
  if (status != operators::kStatusOk) {
    const char* reason = aclGetRecentErrMsg();
    throw std::runtime_error(std::string(name) + " failed with " + std::to_string(status) + ": " +
                             (reason == nullptr ? "no reason was given" : reason));
  }
  return status;
}

Executor PrepareCall(const char* name, uint64_t& workspace_size, const std::function<operators::Plan()>& plan) {
  aclOpExecutor* executor = nullptr;
  ThrowIfFailed(operators::Prepare(name, &workspace_size, &executor, plan), name);
  return Executor(executor);
}

class Unsized : public atb::Operation {
 public:
  explicit Unsized(const char* name) : name_(name) {}
  std::string GetName() const override { return name_; }
  atb::Status InferShape(const atb::SVector<atb::TensorDesc>&, atb::SVector<atb::TensorDesc>&) const override {
    throw std::runtime_error(std::string(name_) + ": inferring shapes is not simulated");
  }
  uint32_t GetInputNum() const override { throw std::runtime_error(std::string(name_) + ": counting tensors is not simulated"); }
  uint32_t GetOutputNum() const override { return GetInputNum(); }

 protected:
  const char* const name_;
};

// All its tensors, or of a cache what is put into it.
Work WorkOf(const char* name, const atb::VariantPack& tensors) {
  Work work;
  const bool fills_cache = std::string_view(name).find("Cache") != std::string_view::npos;
  size_t counted = fills_cache ? 2 : tensors.inTensors.size();
  for (size_t index = 0; index < std::min<size_t>(counted, tensors.inTensors.size()); ++index) {
    work.bytes += static_cast<double>(tensors.inTensors[index].dataSize) * (fills_cache ? 2 : 1);
  }
  for (size_t index = 0; !fills_cache && index < tensors.outTensors.size(); ++index) {
    work.bytes += static_cast<double>(tensors.outTensors[index].dataSize);
  }
  return work;
}

// Setup keeps nothing: torch_npu sets one operation up on one thread while another thread executes it.
class PlannedOperation : public Unsized {
 public:
  PlannedOperation(const char* name, Planner planner) : Unsized(name), planner_(std::move(planner)) {}

  atb::Status Setup(const atb::VariantPack& tensors, uint64_t& workspace_size, atb::Context*) override {
    PrepareCall(name_, workspace_size, [&] { return PlanOf(tensors); });
    return atb::kOk;
  }

  atb::Status Execute(const atb::VariantPack& tensors, uint8_t*, uint64_t workspace_size, atb::Context* context) override {
    uint64_t needed = 0;
    Executor executor = PrepareCall(name_, needed, [&] { return PlanOf(tensors); });
    return ThrowIfFailed(operators::Launch(workspace_size, executor.release(), context->GetExecuteStream()), name_);
  }

 private:
  operators::Plan PlanOf(const atb::VariantPack& tensors) const {
    operators::Plan plan = planner_(Arguments(tensors));
    if (KernelsAreTimed() && plan.duration == 0) {
      plan.duration = KernelTime(WorkOf(name_, tensors));
    }
    return plan;
  }

  const Planner planner_;
};

class PreparedCall : public Unsized {
 public:
  using Unsized::Unsized;

  atb::Status Setup(const atb::VariantPack&, uint64_t&, atb::Context*) override { return atb::kInvalidParameter; }
  atb::Status Execute(const atb::VariantPack&, uint8_t*, uint64_t, atb::Context*) override { return atb::kInvalidParameter; }

  Executor executor;
};

}  // namespace

atb::Operation* NewOperation(const char* name, Planner planner) { return new PlannedOperation(name, std::move(planner)); }

int SetUp(const char* name, uint64_t* workspace_size, atb::Operation** operation, const std::function<operators::Plan()>& plan) {
  Executor executor = PrepareCall(name, *workspace_size, plan);
  if (*operation == nullptr) {
    *operation = new PreparedCall(name);
  }
  static_cast<PreparedCall*>(*operation)->executor = std::move(executor);
  return operators::kStatusOk;
}

int Run(const char* name, uint64_t workspace_size, atb::Operation* operation, atb::Context* context) {
  Executor executor = std::move(static_cast<PreparedCall*>(operation)->executor);
  return ThrowIfFailed(operators::Launch(workspace_size, executor.release(), context->GetExecuteStream()), name);
}

}  // namespace cann_sim::atb_library

namespace atb {

Status DestroyOperation(Operation* operation) {
  delete operation;
  return kOk;
}

}  // namespace atb
