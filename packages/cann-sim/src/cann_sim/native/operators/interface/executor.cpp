// Executors of the two-phase interface.

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "../../runtime/launch.h"
#include "../../runtime/soc.h"
#include "../coverage/asking_operator.h"
#include "../coverage/coverage.h"
#include "../coverage/operators_of_other_devices.h"
#include "launch_accesses.h"
#include "operator.h"

struct aclOpExecutor {
  const char* operator_name;
  cann_sim::operators::Plan plan;
  cann_sim::operators::Dtypes dtypes = 0;
  std::vector<cann_sim::MemoryAccess> accesses = {};
  bool repeatable = false;
};

extern "C" int aclrtSynchronizeStream(aclrtStream stream);

namespace cann_sim::operators {

namespace {

// The text of an error without the stack trace that torch adds.
std::string MessageOf(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error == nullptr ? error.what() : torch_error->what_without_backtrace();
}

// What the stream runs: the operator's kernel on plain CPU tensors, outside autograd.
struct Kernel {
  const char* operator_name;
  std::function<void()> run;

  void operator()() const {
    c10::InferenceMode guard;
    try {
      run();
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string(operator_name) + ": the kernel failed: " + MessageOf(error));
    }
  }
};

// Refuses what the SoC does not have, whatever the operator's own checks say.
void RequireOfSoc(const char* operator_name, Dtypes dtypes) {
  const Soc& soc = TheSoc();
  if (!soc.is_inference_product) {
    return;
  }
  if (IsMissingOnInferenceProducts(operator_name)) {
    throw Refusal("the simulated " + std::string(soc.name) +
                      " does not have this operator, which CANN documents for other products",
                  kStatusKernelNotFound);
  }
  if ((dtypes >> static_cast<int>(c10::ScalarType::BFloat16)) & 1) {
    throw Refusal("expected dtypes that the simulated " + std::string(soc.name) + " has, found bfloat16; use float16");
  }
}

int RefuseCall(const char* operator_name, const std::string& reason, int status) {
  std::string message = std::string(operator_name) + ": " + reason;
  const std::string asked_by = AskingOperator();
  NoteRefusal(operator_name, reason, asked_by);
  if (!asked_by.empty()) {
    message += " (called by the torch operator " + asked_by + ")";
  }
  return Report(status, message);
}

}  // namespace

int Prepare(const char* operator_name, uint64_t* workspace_size, aclOpExecutor** executor,
            const std::function<Plan()>& validate) {
  try {
    BeginCall();
    BeginAccesses();
    Plan plan = validate();
    RequireOfSoc(operator_name, DtypesOfCall());
    *workspace_size = plan.workspace_size;
    *executor = new aclOpExecutor{operator_name, std::move(plan), DtypesOfCall(), TakeAccesses(operator_name)};
    return kStatusOk;
  } catch (const Refusal& refusal) {
    return RefuseCall(operator_name, refusal.what(), refusal.status());
  } catch (const std::exception& error) {
    return RefuseCall(operator_name, MessageOf(error), kStatusInvalidArgument);
  }
}

int Launch(uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream) {
  if (executor == nullptr) {
    return Report(kStatusNullArgument,
                  "launch of an aclnn operator: expected an executor from its GetWorkspaceSize, found a null pointer");
  }
  std::unique_ptr<aclOpExecutor> owned(executor->repeatable ? nullptr : executor);
  if (workspace_size < executor->plan.workspace_size) {
    return RefuseCall(executor->operator_name,
                      "expected a workspace of at least " + std::to_string(executor->plan.workspace_size) +
                          " bytes, found " + std::to_string(workspace_size),
                      kStatusInvalidArgument);
  }
  NoteLaunch(executor->operator_name, executor->dtypes);
  ::cann_sim::Kernel kernel{executor->operator_name, [] {}, executor->plan.duration};
  if (!KernelsAreNull()) {
    kernel.run = Kernel{executor->operator_name,
                        owned ? std::move(executor->plan.kernel) : executor->plan.kernel};
    kernel.accesses = executor->accesses;
  }
  int status = LaunchKernel(stream, std::move(kernel));
  if (status == kStatusOk && executor->plan.finish) {
    status = aclrtSynchronizeStream(stream);
    if (status == kStatusOk) {
      executor->plan.finish();
    }
  }
  return status;
}

}  // namespace cann_sim::operators

#pragma GCC visibility push(default)
extern "C" {

int aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (executor == nullptr) {
    return cann_sim::operators::kStatusNullArgument;
  }
  executor->repeatable = true;
  return cann_sim::operators::kStatusOk;
}

// Runs a prepared call in this thread and destroys it: for the kernel of an engine that computes what an operator does. Throws
// what the operator's kernel throws.
void cann_sim_run_prepared(aclOpExecutor* executor) {
  const std::unique_ptr<aclOpExecutor> owned(executor);
  cann_sim::operators::Kernel{owned->operator_name, owned->plan.kernel}();
}

int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return cann_sim::operators::kStatusOk;
}

}  // extern "C"
#pragma GCC visibility pop
