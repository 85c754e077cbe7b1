// How an operator of the older road is defined, which torch_npu takes where there is no aclnn operator:
//
//   CANN_SIM_COMPILED_OPERATOR(StrideAdd) {
//     const Tensor x1 = call.Input(0, "x1"), y = call.Output(0, "y");    // by position, as torch_npu passes them
//     const int64_t length = call.Attribute<int64_t>("c1_len");          // by name
//     return [=] { ... };                                                // as in operator.h
//   }
#pragma once

#include <string>
#include <type_traits>

#include "../interface/operator.h"
#include "compiled_call.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// The arguments of one call. A missing argument that is requested is a Refusal.
class CompiledArguments {
 public:
  explicit CompiledArguments(const CompiledCall& call) : call_(call) {}

  bool IsOnHost(size_t index) const { return index < call_.inputs.size() && call_.inputs[index].on_host; }
  Tensor Input(size_t index, const char* name) const;
  // Absent where the caller passes none, or fewer inputs.
  OptionalTensor OptionalInput(size_t index, const char* name) const;
  // Values that the host passes in addition to the tensors (shapes, axes, scalars); a copy on the CPU.
  at::Tensor HostInput(size_t index, const char* name) const;
  std::vector<int64_t> HostIntegers(size_t index, const char* name) const;
  Tensor Output(size_t index, const char* name) const;

  template <class T>
  const T& Attribute(const char* name) const {
    const T* value = Find<T>(name);
    if (value == nullptr) {
      RefuseMissing(name);
    }
    return *value;
  }
  template <class T>
  T Attribute(const char* name, T fallback) const {
    const T* value = Find<T>(name);
    return value == nullptr ? fallback : *value;
  }

 private:
  template <class T>
  const T* Find(const char* name) const {
    const auto found = call_.attributes.find(name);
    if (found == call_.attributes.end()) {
      return nullptr;
    }
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) {
      RefuseKind(name);
    }
    return value;
  }
  [[noreturn]] static void RefuseMissing(const char* name);
  [[noreturn]] static void RefuseKind(const char* name);

  const CompiledCall& call_;
};

// Prepares the call and launches it on `stream`.
aclError RunCompiled(const char* name, const CompiledCall& call, aclrtStream stream, Plan (*prepare)(const CompiledArguments&));

}  // namespace cann_sim::operators
#pragma GCC visibility pop

// CANN_SIM_COMPILED_OPERATOR(name) { body returning a Plan, of the arguments `call` }
#define CANN_SIM_COMPILED_OPERATOR(NAME)                                                                       \
  static ::cann_sim::operators::Plan NAME##CompiledPlan(const ::cann_sim::operators::CompiledArguments& call); \
  CANN_SIM_ENTRY aclError cann_sim_compiled_##NAME(const ::cann_sim::CompiledCall& call, aclrtStream stream) { \
    return ::cann_sim::operators::RunCompiled(#NAME, call, stream, NAME##CompiledPlan);                        \
  }                                                                                                            \
  static ::cann_sim::operators::Plan NAME##CompiledPlan(const ::cann_sim::operators::CompiledArguments& call)
