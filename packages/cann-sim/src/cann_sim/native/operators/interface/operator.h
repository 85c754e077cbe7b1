// How an operator is defined:
//
//   CANN_SIM_OPERATOR(aclnnAdds, (Tensor, self), (Scalar, other), (Scalar, alpha), (Tensor, out)) {
//     RequireShape(out, self.sizes());                                // workspace phase: refuse by throwing Refusal
//     return [=] { out.Store(at::add(self, other, alpha)); };         // launch phase: runs on the stream, owns its copies
//   }
//
// This exports `aclnnAddsGetWorkspaceSize` and `aclnnAdds` with the C signature the argument types spell, and the text of
// the arguments, which Python reads. Before the body, tensors are checked against the operator's row of the documented_*.h
// tables: dtypes, numbers of dimensions and layouts that the device refuses never reach the body, which refuses what no single
// argument shows (two that have to agree) and what the simulator lacks. An operator that no document describes has no row; its
// body checks all.
#pragma once

#include <acl/acl_base.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "../documented/documented_argument.h"
#include "accepted_call.h"
#include "argument.h"
#include "refusal.h"
#include "validation.h"

// One prepared call: made by the workspace phase, freed by its launch unless it is repeatable.
struct aclOpExecutor;

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// What the workspace phase decided.
struct Plan {
  // `kernel` runs on the stream, any number of times, on copies of the arguments.
  template <class Kernel>
  Plan(Kernel kernel) : kernel(std::move(kernel)) {}  // NOLINT: conversion from a lambda is the point
  template <class Kernel, class Finish>
  Plan(Kernel kernel, Finish finish) : kernel(std::move(kernel)), finish(std::move(finish)) {}

  std::function<void()> kernel;
  // Bytes of device memory the launch must be given.
  uint64_t workspace_size = 0;
  // How long the kernel takes on the virtual clock, in nanoseconds; where it is 0 the names and shapes of the arguments say it.
  int64_t duration = 0;
  // Runs in the launching thread after the stream has been synchronised; for results whose shape depends on data.
  std::function<void()> finish;
};

// Runs `validate` and stores its plan as `*executor`; a Refusal becomes a status and the error message.
int Prepare(const char* operator_name, uint64_t* workspace_size, aclOpExecutor** executor,
            const std::function<Plan()>& validate);

// Launches a prepared call on `stream` and frees the executor unless it is repeatable. Refuses a workspace that is smaller
// than the workspace phase returned.
int Launch(uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream);

}  // namespace cann_sim::operators
#pragma GCC visibility pop

#define CANN_SIM_ENTRY extern "C" __attribute__((visibility("default")))

#define CANN_SIM_PARENS ()
#define CANN_SIM_EXPAND(...) CANN_SIM_EXPAND3(CANN_SIM_EXPAND3(CANN_SIM_EXPAND3(CANN_SIM_EXPAND3(__VA_ARGS__))))
#define CANN_SIM_EXPAND3(...) CANN_SIM_EXPAND2(CANN_SIM_EXPAND2(CANN_SIM_EXPAND2(CANN_SIM_EXPAND2(__VA_ARGS__))))
#define CANN_SIM_EXPAND2(...) CANN_SIM_EXPAND1(CANN_SIM_EXPAND1(CANN_SIM_EXPAND1(CANN_SIM_EXPAND1(__VA_ARGS__))))
#define CANN_SIM_EXPAND1(...) __VA_ARGS__
#define CANN_SIM_FOR_EACH(macro, ...) __VA_OPT__(CANN_SIM_EXPAND(CANN_SIM_FOR_EACH_STEP(macro, __VA_ARGS__)))
#define CANN_SIM_FOR_EACH_STEP(macro, first, ...) \
  macro first __VA_OPT__(, CANN_SIM_FOR_EACH_AGAIN CANN_SIM_PARENS(macro, __VA_ARGS__))
#define CANN_SIM_FOR_EACH_AGAIN() CANN_SIM_FOR_EACH_STEP

#define CANN_SIM_PARAMETER(type, name) [[maybe_unused]] ::cann_sim::operators::type name
#define CANN_SIM_ABI_PARAMETER(type, name) ::cann_sim::operators::type::Abi name
#define CANN_SIM_ARGUMENT(type, name) ::cann_sim::operators::type(name, #name)
#define CANN_SIM_GIVEN(type, name) ::cann_sim::operators::GivenArgument(name)
#define CANN_SIM_TEXT(...) CANN_SIM_TEXT_OF(__VA_ARGS__)
#define CANN_SIM_TEXT_OF(...) #__VA_ARGS__

// The plan of a call whose tensors the device's operator accepts.
#define CANN_SIM_CHECKED_PLAN(NAME, ...)                                                                   \
  [&] {                                                                                                    \
    const std::initializer_list<::cann_sim::operators::GivenArgument> given = {                            \
        CANN_SIM_FOR_EACH(CANN_SIM_GIVEN, __VA_ARGS__)};                                                   \
    if (&NAME##Documented != nullptr) {                                                                    \
      ::cann_sim::operators::RequireDocumented(NAME##Documented, given);                                   \
    }                                                                                                      \
    ::cann_sim::operators::Plan plan = NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_ARGUMENT, __VA_ARGS__));      \
    if (::cann_sim::operators::sees_calls.load(std::memory_order_relaxed)) {                               \
      ::cann_sim::operators::SeeCall(#NAME, CANN_SIM_TEXT(__VA_ARGS__), given, plan.duration);             \
    }                                                                                                      \
    return plan;                                                                                           \
  }

// CANN_SIM_OPERATOR(name, (Type, argument)...) { body returning a Plan }
#define CANN_SIM_OPERATOR(NAME, ...)                                                                           \
  extern "C" {                                                                                                 \
  extern __attribute__((visibility("default"))) const char cann_sim_arguments_##NAME[];                        \
  const char cann_sim_arguments_##NAME[] = CANN_SIM_TEXT(__VA_ARGS__);                                         \
  extern __attribute__((weak, visibility("default"))) const ::cann_sim::operators::DocumentedOperator          \
      NAME##Documented;                                                                                        \
  }                                                                                                            \
  static ::cann_sim::operators::Plan NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_PARAMETER, __VA_ARGS__));           \
  CANN_SIM_ENTRY int NAME##GetWorkspaceSize(CANN_SIM_FOR_EACH(CANN_SIM_ABI_PARAMETER, __VA_ARGS__),            \
                                             uint64_t* workspace_size, aclOpExecutor** executor) {             \
    return ::cann_sim::operators::Prepare(#NAME, workspace_size, executor,                                     \
                                            CANN_SIM_CHECKED_PLAN(NAME, __VA_ARGS__));                         \
  }                                                                                                            \
  CANN_SIM_ENTRY int NAME(void*, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream) {       \
    return ::cann_sim::operators::Launch(workspace_size, executor, stream);                                    \
  }                                                                                                            \
  static ::cann_sim::operators::Plan NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_PARAMETER, __VA_ARGS__))

// As CANN_SIM_OPERATOR, for an operator that can also return a workspace for every later call.
#define CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(NAME, ...)                                                        \
  extern "C" __attribute__((weak, visibility("default"))) const ::cann_sim::operators::DocumentedOperator      \
      NAME##Documented;                                                                                        \
  static ::cann_sim::operators::Plan NAME##Plan(CANN_SIM_FOR_EACH(CANN_SIM_PARAMETER, __VA_ARGS__));           \
  CANN_SIM_ENTRY int NAME##GetMaxWorkspaceSize(CANN_SIM_FOR_EACH(CANN_SIM_ABI_PARAMETER, __VA_ARGS__),         \
                                               uint64_t* workspace_size, aclOpExecutor** executor) {           \
    return ::cann_sim::operators::Prepare(#NAME, workspace_size, executor,                                     \
                                            CANN_SIM_CHECKED_PLAN(NAME, __VA_ARGS__));                         \
  }                                                                                                            \
  CANN_SIM_OPERATOR(NAME, __VA_ARGS__)
