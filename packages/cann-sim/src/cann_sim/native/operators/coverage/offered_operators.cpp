// Every aclnn operator that the installed torch_npu may ask for exists, so that torch_npu chooses between operator versions
// as it does on a device and never falls back to the old aclop road. Each name is a jump to the library that defines the
// operator; one that none defines fails with the operator's name and that of the torch operator that wanted it.

#include <exception>
#include <string>

#include "../../deferred/deferred_libraries.h"
#include "../../deferred/trampoline.h"
#include "../../runtime/soc.h"
#include "../interface/refusal.h"
#include "asking_operator.h"
#include "coverage.h"
#include "operators_of_other_devices.h"

namespace {

struct OfferedFunction {
  const char* function;
  const char* operator_name;
};

#define CANN_SIM_OFFERED(FUNCTION, OPERATOR) {#FUNCTION, #OPERATOR},
constexpr OfferedFunction kOffered[] = {
#include "requested_operators.h"
    // Not one of a pair, and so not in the list of those.
    CANN_SIM_OFFERED(aclnnNpuFormatCastCalculateSizeAndFormat, aclnnNpuFormatCast)
};
#undef CANN_SIM_OFFERED

// Why the call that this thread is in cannot be made: of an operator that is not there, and the reason where it could not be
// compiled.
struct FailedCall {
  const char* operator_name = "";
  std::string reason;
};
thread_local FailedCall failed_call;

int RefuseMissing() {
  const char* const operator_name = failed_call.operator_name;
  const std::string asked_by = cann_sim::operators::AskingOperator();
  if (cann_sim::operators::IsOfOtherDevices(operator_name)) {
    const std::string reason = std::string("the simulated ") + cann_sim::TheSoc().name +
                               " does not have this operator, which CANN documents for other products";
    cann_sim::operators::NoteRefusal(operator_name, reason, asked_by);
    return cann_sim::operators::Report(cann_sim::operators::kStatusKernelNotFound,
                                       std::string(operator_name) + ": " + reason +
                                           (asked_by.empty() ? "" : " (called by the torch operator " + asked_by + ")"));
  }
  std::string message = std::string(operator_name) + " is not simulated";
  cann_sim::operators::NoteMissing(operator_name, asked_by);
  message += asked_by.empty() ? "; it was launched from the task queue, set TASK_QUEUE_ENABLE=1 or 0 to see by what"
                              : "; the torch operator " + asked_by + " needs it";
  return cann_sim::operators::Report(cann_sim::operators::kStatusKernelNotFound,
                                     message + " (`cann-sim ops` lists what is simulated)");
}

int RefuseNotCompiled() {
  return cann_sim::operators::Report(cann_sim::operators::kStatusKernelNotFound,
                                     std::string(failed_call.operator_name) + ": " + failed_call.reason);
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void* cann_sim_targets[std::size(kOffered)];

__attribute__((visibility("hidden"))) void* cann_sim_target(unsigned number) noexcept {
  const OfferedFunction& offered = kOffered[number];
  failed_call = {offered.operator_name, ""};
  try {
    void* const found = cann_sim::FindDeferred(offered.function);
    if (found == nullptr) {
      return reinterpret_cast<void*>(&RefuseMissing);
    }
    __atomic_store_n(&cann_sim_targets[number], found, __ATOMIC_RELEASE);
    return found;
  } catch (const std::exception& error) {
    failed_call.reason = error.what();
    return reinterpret_cast<void*>(&RefuseNotCompiled);
  }
}

// A function of the older road to operators; null where none is simulated, or where it cannot be compiled.
__attribute__((visibility("default"))) void* cann_sim_find_compiled(const char* name) noexcept {
  try {
    return cann_sim::FindDeferred(name);
  } catch (const std::exception& error) {
    cann_sim::operators::Report(cann_sim::operators::kStatusKernelNotFound, error.what());
    return nullptr;
  }
}

}  // extern "C"

#define CANN_SIM_OFFERED(FUNCTION, OPERATOR) CANN_SIM_TRAMPOLINE(FUNCTION)
asm(CANN_SIM_TRAMPOLINE_MACROS
#include "requested_operators.h"
    CANN_SIM_TRAMPOLINE(aclnnNpuFormatCastCalculateSizeAndFormat));
