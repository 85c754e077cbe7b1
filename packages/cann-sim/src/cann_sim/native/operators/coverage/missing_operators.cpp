// Every aclnn operator that the installed torch_npu may ask for exists, so that torch_npu chooses between operator versions
// as it does on a device and never falls back to the old aclop road. The ones defined here are those that nothing else
// defines: weak symbols, which fail with the operator's name and that of the torch operator that wanted it.

#include <string>

#include "../interface/refusal.h"
#include "asking_operator.h"
#include "coverage.h"
#include "operators_of_other_devices.h"

namespace {

int RefuseMissing(const char* operator_name) {
  const std::string asked_by = cann_sim::operators::AskingOperator();
  if (cann_sim::operators::IsOfOtherDevices(operator_name)) {
    const std::string reason = "the simulated Ascend910B1 does not have this operator, which CANN documents for other products";
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

}  // namespace

#define CANN_SIM_MISSING(FUNCTION, OPERATOR) \
  extern "C" __attribute__((visibility("default"), weak)) int FUNCTION() { return RefuseMissing(#OPERATOR); }

// One line a function that torch_npu may look up; written by cann_sim/inventory/requested_operators.py.
#include "requested_operators.h"
