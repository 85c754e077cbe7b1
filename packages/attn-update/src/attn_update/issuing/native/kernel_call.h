// Calls of CANN's fused attention past torch: tensors are described once, a step replaces what changed. Which kernel takes
// the tables in attn_update/issuing/kernels/kernel_signature.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "call.h"

namespace attn_update {

// The C functions around a kernel, as torch_npu finds them.
struct KernelLibrary {
  using Describe = void* (*)(const at::Tensor&);
  using MakeList = void* (*)(const void* const*, std::uint64_t);
  using MakeIntegers = void* (*)(const std::int64_t*, std::uint64_t);
  using Destroy = int (*)(const void*);
  using RecentMessage = const char* (*)();

  Describe describe_tensor;  // returns an aclTensor, null for an undefined tensor
  Destroy destroy_tensor;
  MakeList make_list;
  Destroy destroy_list;  // with its tensors
  MakeIntegers make_integers;
  Destroy destroy_integers;
  Destroy destroy_executor;
  RecentMessage recent_message;

  std::shared_ptr<void> describe(const at::Tensor& given) const {
    return {describe_tensor(given), [destroy = destroy_tensor](void* held) { destroy(held); }};
  }

  const std::shared_ptr<void>& tensor(const Value& given) const {
    if (!given.described && !given.value.isNone()) {
      given.described = describe(given.value.toTensor());
    }
    return given.described;
  }

  const std::shared_ptr<void>& list_of(const Value& given) const {
    if (!given.described_list) {
      const void* only = describe_tensor(given.value.toTensor());
      given.described_list = {make_list(&only, 1), [destroy = destroy_list](void* held) { destroy(held); }};
    }
    return given.described_list;
  }

  // What a call passes for what a parameter keeps.
  template <typename Kept>
  Kept pass(Kept kept) const {
    return kept;
  }

  void* pass(Integers* integers) const {
    return integers == nullptr ? nullptr : integers->array([this](const std::vector<std::int64_t>& values) {
      return std::shared_ptr<void>(
          make_integers(values.data(), values.size()),
          [destroy = destroy_integers](void* held) { destroy(held); });
    });
  }
};

// How a parameter of the first phase is kept between calls: made from the argument, absent ones from nullptr. `get` is what
// `KernelLibrary::pass` makes the passed value of.

struct TensorParameter {
  using Passed = void*;
  TensorParameter(const KernelLibrary& library, const Value* value)
      : held(value == nullptr ? nullptr : library.tensor(*value)) {}
  Passed get() const { return held.get(); }
  std::shared_ptr<void> held;
};

// The kernel takes key and value as lists, torch as one tensor.
struct ListParameter {
  using Passed = void*;
  ListParameter(const KernelLibrary& library, const Value* value)
      : held(library.list_of(*value)) {}
  Passed get() const { return held.get(); }
  std::shared_ptr<void> held;
};

struct IntegersParameter {
  using Passed = void*;
  IntegersParameter(const KernelLibrary& /*library*/, const Value* value)
      : held(value == nullptr ? nullptr : value->integers) {}
  Integers* get() const { return held.get(); }
  std::shared_ptr<Integers> held;
};

template <typename Plain>
struct PlainParameter {
  using Passed = Plain;
  PlainParameter(const KernelLibrary& /*library*/, const Value* value)
      : plain(value == nullptr ? Plain() : value->value.to<Plain>()) {}
  Passed get() const { return plain; }
  Plain plain;
};

struct TextParameter {
  using Passed = char*;
  TextParameter(const KernelLibrary& /*library*/, const Value* value) : text(value->value.toStringRef()) {}
  Passed get() const { return const_cast<char*>(text.c_str()); }
  std::string text;
};

// An element of `out`.
template <std::size_t Index>
struct OutputParameter {
  using Passed = void*;
  OutputParameter(const KernelLibrary& library, const Value* value)
      : held(library.describe(value->value.toTensorVector().at(Index))) {}
  Passed get() const { return held.get(); }
  std::shared_ptr<void> held;
};

using T = TensorParameter;
using L = ListParameter;
using A = IntegersParameter;
using I = PlainParameter<std::int64_t>;
using D = PlainParameter<double>;
using B = PlainParameter<bool>;
using S = TextParameter;
using O0 = OutputParameter<0>;
using O1 = OutputParameter<1>;

// The parameters of a kernel's first phase and the arguments of the operator that they are; "" for none.
template <typename... Parameters>
struct KernelSignature {
  const char* kernel;
  const char* op;
  std::array<const char*, sizeof...(Parameters)> arguments;
};

// The addresses of a kernel's two phases.
struct KernelPhases {
  void* prepare;
  void* launch;
};

template <typename... Parameters>
class KernelCall : public Call {
 public:
  KernelCall(
      const KernelSignature<Parameters...>& signature,
      const KernelLibrary& library,
      const KernelPhases& phases,
      const c10::FunctionSchema& schema,
      const Values& values)
      : KernelCall(signature, library, phases, schema, values, std::index_sequence_for<Parameters...>()) {}

  void set(std::size_t index, const Value& value) override {
    if (index == workspace_index_) {
      set_workspace(value);
    } else {
      set_parameters(static_cast<int>(index), value, std::index_sequence_for<Parameters...>());
    }
  }

  bool shares_integers() const override { return true; }

  void run(void* stream) override {
    std::uint64_t needed = 0;
    void* executor = nullptr;
    const int prepared =
        std::apply([&](auto... kept) { return prepare_(library_.pass(kept)..., &needed, &executor); }, kept_);
    if (prepared != 0) {
      fail("GetWorkspaceSize", prepared);
    }
    if (needed > workspace_bytes_) {
      library_.destroy_executor(executor);
      throw std::runtime_error(
          std::string(kernel_) + " needs a workspace of " + std::to_string(needed) + " bytes, found " +
          std::to_string(workspace_bytes_));
    }
    const int launched = launch_(workspace_data_, workspace_bytes_, executor, stream);
    if (launched != 0) {
      fail("", launched);
    }
  }

 private:
  using Prepare = int (*)(typename Parameters::Passed..., std::uint64_t*, void**);
  using Launch = int (*)(void*, std::uint64_t, void*, void*);

  template <std::size_t... Index>
  KernelCall(
      const KernelSignature<Parameters...>& signature,
      const KernelLibrary& library,
      const KernelPhases& phases,
      const c10::FunctionSchema& schema,
      const Values& values,
      std::index_sequence<Index...>)
      : kernel_(signature.kernel),
        library_(library),
        prepare_(reinterpret_cast<Prepare>(phases.prepare)),
        launch_(reinterpret_cast<Launch>(phases.launch)),
        sources_{source_of(schema, signature.arguments[Index])...},
        parameters_{Parameters(library, sources_[Index] < 0 ? nullptr : values[sources_[Index]].get())...},
        kept_{std::get<Index>(parameters_).get()...},
        workspace_index_(static_cast<std::size_t>(source_of(schema, "workspace"))) {
    set_workspace(*values[workspace_index_]);
  }

  static int source_of(const c10::FunctionSchema& schema, std::string_view argument) {
    if (argument.empty()) {
      return -1;
    }
    const auto index = schema.argumentIndexWithName(argument);
    TORCH_CHECK_VALUE(index.has_value(), "the operator has no argument '", argument, "'");
    return *index;
  }

  void set_workspace(const Value& value) {
    TORCH_CHECK_VALUE(value.value.isTensor(), "expected a workspace");
    workspace_ = value.value.toTensor();
    workspace_data_ = workspace_.data_ptr();
    workspace_bytes_ = workspace_.nbytes();
  }

  template <std::size_t... Index>
  void set_parameters(int source, const Value& value, std::index_sequence<Index...>) {
    ((sources_[Index] == source
          ? static_cast<void>(
                std::get<Index>(parameters_) = Parameters(library_, &value),
                std::get<Index>(kept_) = std::get<Index>(parameters_).get())
          : void()),
     ...);
  }

  [[noreturn]] void fail(const char* phase, int status) const {
    const char* message = library_.recent_message();
    throw std::runtime_error(
        std::string(kernel_) + phase + " returned " + std::to_string(status) +
        (message == nullptr || *message == '\0' ? "" : std::string(": ") + message));
  }

  const char* kernel_;
  KernelLibrary library_;
  Prepare prepare_;
  Launch launch_;
  std::array<int, sizeof...(Parameters)> sources_;
  std::tuple<Parameters...> parameters_;
  // What a call reads, apart from what owns it: the calls of all layers are to stay in the cache.
  std::tuple<decltype(std::declval<const Parameters&>().get())...> kept_;
  std::size_t workspace_index_;
  at::Tensor workspace_;
  void* workspace_data_ = nullptr;
  std::uint64_t workspace_bytes_ = 0;
};

}  // namespace attn_update
