#include "asking_operator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unwind.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <unordered_map>
#include <vector>

namespace {

// torch has no public way from a kernel to its code address, which is what a stack frame can be compared with. Explicit
// instantiation may name private members; that is used here, for an error message, and nowhere else.
template <class Member, typename Member::Type Pointer>
struct Expose {
  friend typename Member::Type Access(Member) { return Pointer; }
};

#define CANN_SIM_EXPOSE(tag, owner, type, member)  \
  struct tag {                                     \
    using Type = type owner::*;                    \
    friend Type Access(tag);                       \
  };                                               \
  template struct Expose<tag, &owner::member>

using BoxedFunction = void(c10::OperatorKernel*, const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack*);

CANN_SIM_EXPOSE(SafeKernel, c10::SafeKernelFunction, c10::KernelFunction, kernel_);
CANN_SIM_EXPOSE(Unboxed, c10::KernelFunction, void*, unboxed_kernel_func_);
CANN_SIM_EXPOSE(SymUnboxed, c10::KernelFunction, void*, sym_unboxed_kernel_func_);
CANN_SIM_EXPOSE(Boxed, c10::KernelFunction, c10::BoxedKernel, boxed_kernel_func_);
CANN_SIM_EXPOSE(BoxedCode, c10::BoxedKernel, BoxedFunction*, boxed_kernel_func_);

std::string FullName(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

struct TorchOperators {
  std::map<void*, std::string> by_kernel;                // start of the code of a device kernel -> operator
  std::map<std::string, std::string> by_function;        // function of at::_ops -> operator
};

TorchOperators ReadTorchOperators(const std::vector<c10::OperatorName>& names) {
  TorchOperators operators;
  auto& kernels = operators.by_kernel;
  auto& names_by_function = operators.by_function;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : names) {
    const std::string full_name = FullName(name);
    if (full_name.rfind("aten::", 0) == 0) {
      std::string function = full_name.substr(6);
      function = std::regex_replace(function, std::regex("\\."), "_");
      names_by_function[function] = full_name;
    }
    const auto handle = dispatcher.findSchema(name);
    if (!handle.has_value() || !handle->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    const c10::SafeKernelFunction safe = handle->getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1);
    const c10::KernelFunction& kernel = safe.*Access(SafeKernel{});
    kernels[kernel.*Access(Unboxed{})] = full_name;
    kernels[kernel.*Access(SymUnboxed{})] = full_name;
    kernels[reinterpret_cast<void*>((kernel.*Access(Boxed{})).*Access(BoxedCode{}))] = full_name;
  }
  kernels.erase(nullptr);
  return operators;
}

// Counts the operators that torch has had, without asking for their names.
class Registrations final : public c10::OpRegistrationListener {
 public:
  static std::atomic<size_t>& Count() {
    static std::atomic<size_t> count{0};
    return count;
  }
  void onOperatorRegistered(const c10::OperatorHandle& /*operator*/) override { ++Count(); }
  void onOperatorDeregistered(const c10::OperatorHandle& /*operator*/) override { ++Count(); }
};

// Read again only where operators have come or gone: refusals that a program catches may be many.
std::shared_ptr<const TorchOperators> KnownTorchOperators() {
  static std::mutex mutex;
  static auto* known = new std::shared_ptr<const TorchOperators>;
  static size_t known_at = 0;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  // For the life of the process: torch may register while it ends.
  [[maybe_unused]] static auto* listening =
      new c10::RegistrationHandleRAII(dispatcher.addRegistrationListener(std::make_unique<Registrations>()));
  const size_t now = Registrations::Count();
  const std::lock_guard<std::mutex> lock(mutex);
  if (*known == nullptr || known_at != now) {
    *known = std::make_shared<const TorchOperators>(ReadTorchOperators(dispatcher.getAllOpNames()));
    known_at = now;
  }
  return *known;
}

// "add_Tensor" from the symbol of at::_ops::add_Tensor::call, or empty.
std::string OperatorFunction(void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) {
    return "";
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  const std::string symbol = status == 0 ? demangled.get() : "";
  const std::string prefix = "at::_ops::";
  const size_t start = symbol.find(prefix);
  const size_t end = start == std::string::npos ? start : symbol.find("::", start + prefix.size());
  return end == std::string::npos ? "" : symbol.substr(start + prefix.size(), end - start - prefix.size());
}

// What a place in the code belongs to. Looked up once: `dladdr` reads all symbols of a library, and refusals may be many.
struct CallSite {
  void* function;
  std::string operator_function;
};

const CallSite& CallSiteAt(void* address) {
  static thread_local std::unordered_map<void*, CallSite> known;
  const auto found = known.find(address);
  if (found != known.end()) {
    return found->second;
  }
  return known.emplace(address, CallSite{_Unwind_FindEnclosingFunction(address), OperatorFunction(address)}).first->second;
}

}  // namespace

namespace cann_sim::operators {

std::string AskingOperator() {
  const std::shared_ptr<const TorchOperators> operators = KnownTorchOperators();
  void* frames[128];
  const int depth = backtrace(frames, 128);
  for (int frame = 0; frame < depth; ++frame) {
    const CallSite& site = CallSiteAt(static_cast<char*>(frames[frame]) - 1);
    if (const auto kernel = operators->by_kernel.find(site.function); kernel != operators->by_kernel.end()) {
      return kernel->second;
    }
    if (const auto name = operators->by_function.find(site.operator_function); name != operators->by_function.end()) {
      return name->second;
    }
  }
  return "";
}

}  // namespace cann_sim::operators

// For the operator compiler's library, which must not depend on torch. Valid until the next call on the same thread.
extern "C" __attribute__((visibility("default"))) const char* cann_sim_asking_operator() {
  static thread_local std::string name;
  name = cann_sim::operators::AskingOperator();
  return name.c_str();
}
