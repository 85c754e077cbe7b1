// What torch_npu calls of ATB, in either of two forms: operations made from parameters (create_operation.cpp), and pairs of C
// functions, which are defined here:
//
//   CANN_SIM_ATB_FUNCTION(AtbMLA, (Tensor, query), (Float, scale), (Tensor, output)) {
//     RequireDtype(query, kHalves);                 // AtbMLAGetWorkspaceSize: refuses by throwing Refusal
//     return [=] { ... };                           // AtbMLA: runs on the stream
//   }
#pragma once

#include <functional>

#include "../operators/cost/call_work.h"
#include "../operators/interface/operator.h"
#include "arguments.h"
#include "interface.h"

namespace cann_sim::atb_library {

using Planner = std::function<operators::Plan(const Arguments& tensors)>;

// An operation that launches what `planner` makes of the tensors. `name` is a literal. The caller destroys it.
atb::Operation* NewOperation(const char* name, Planner planner);

// The two halves of a function of the C interface. The operation that `SetUp` leaves in `*operation`, or takes from it, holds
// the prepared call until `Run` launches it.
int SetUp(const char* name, uint64_t* workspace_size, atb::Operation** operation, const std::function<operators::Plan()>& plan);
int Run(const char* name, uint64_t workspace_size, atb::Operation* operation, atb::Context* context);

}  // namespace cann_sim::atb_library

#define CANN_SIM_ATB_FUNCTION(NAME, ...)                                                                        \
  static ::cann_sim::operators::Plan NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_PARAMETER, __VA_ARGS__));            \
  CANN_SIM_ENTRY int NAME##GetWorkspaceSize(CANN_SIM_FOR_EACH(CANN_SIM_ABI_PARAMETER, __VA_ARGS__),             \
                                             uint64_t* workspace_size, atb::Operation** operation, atb::Context*) { \
    return ::cann_sim::atb_library::SetUp(#NAME, workspace_size, operation, [&] {                               \
      ::cann_sim::operators::Plan plan = NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_ARGUMENT, __VA_ARGS__));         \
      if (::cann_sim::KernelsAreTimed() && plan.duration == 0) {                                                \
        plan.duration = ::cann_sim::KernelTime(::cann_sim::operators::WorkOfCall(                               \
            #NAME, CANN_SIM_TEXT(__VA_ARGS__), {CANN_SIM_FOR_EACH(CANN_SIM_GIVEN, __VA_ARGS__)}));              \
      }                                                                                                         \
      return plan;                                                                                              \
    });                                                                                                         \
  }                                                                                                             \
  CANN_SIM_ENTRY int NAME(void*, uint64_t workspace_size, atb::Operation* operation, atb::Context* context) {   \
    return ::cann_sim::atb_library::Run(#NAME, workspace_size, operation, context);                             \
  }                                                                                                             \
  static ::cann_sim::operators::Plan NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_PARAMETER, __VA_ARGS__))
