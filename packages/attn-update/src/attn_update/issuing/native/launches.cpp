// The launches of one update plan, issued in one call without the interpreter lock.
//
// Built at first use by attn_update.issuing.native.native_build against the torch of the process, and against
// nothing else: the calls of the device come in as addresses of CANN's public C functions, and the
// one that describes a tensor to CANN as that of torch_npu's.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "call.h"
#include "device_calls.h"
#include "kernel_call.h"
#include "kernel_signatures.h"
#include "replay_event.h"
#include "step_arguments.h"

namespace {

using namespace attn_update;

// The kernels without torch's dispatcher, and the calls around them; empty if torch_npu does not expose them.
class Kernels {
 public:
  explicit Kernels(py::dict calls) : calls_(std::move(calls)) {
    if (calls_.empty()) {
      return;
    }
    library_ = KernelLibrary{
        find_call<KernelLibrary::Describe>(calls_, "describe_tensor"),
        find_call<KernelLibrary::Destroy>(calls_, "aclDestroyTensor"),
        find_call<KernelLibrary::MakeList>(calls_, "aclCreateTensorList"),
        find_call<KernelLibrary::Destroy>(calls_, "aclDestroyTensorList"),
        find_call<KernelLibrary::MakeIntegers>(calls_, "aclCreateIntArray"),
        find_call<KernelLibrary::Destroy>(calls_, "aclDestroyIntArray"),
        find_call<KernelLibrary::Destroy>(calls_, "aclDestroyAclOpExecutor"),
        find_call<KernelLibrary::RecentMessage>(calls_, "aclGetRecentErrMsg")};
  }

  // Returns nothing where the launch has to go through the dispatcher.
  std::unique_ptr<Call> make_call(const c10::OperatorHandle& op, const Values& values) const {
    if (calls_.empty() || op.schema().overload_name() != "out" || !is_plain(op.schema(), values)) {
      return nullptr;
    }
    std::unique_ptr<Call> call;
    std::apply(
        [&](const auto&... signatures) {
          ((call = call ? std::move(call) : make_one(signatures, op.schema(), values)), ...);
        },
        kKernelSignatures);
    return call;
  }

 private:
  template <typename... Parameters>
  std::unique_ptr<Call> make_one(
      const KernelSignature<Parameters...>& signature,
      const c10::FunctionSchema& schema,
      const Values& values) const {
    const std::string kernel = signature.kernel;
    const KernelPhases phases{
        as_pointer<void*>(address_of(calls_, (kernel + "GetWorkspaceSize").c_str())),
        as_pointer<void*>(address_of(calls_, kernel.c_str()))};
    if (schema.name() != signature.op || phases.prepare == nullptr || phases.launch == nullptr) {
      return nullptr;
    }
    return std::make_unique<KernelCall<Parameters...>>(signature, library_, phases, schema, values);
  }

  // Whether every tensor has the data type that torch knows, and there is a workspace.
  static bool is_plain(const c10::FunctionSchema& schema, const Values& values) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      const std::string& name = schema.arguments()[index].name();
      const bool given = !values[index]->value.isNone();
      if (name == "workspace" ? !given : given && name.ends_with("_dtype")) {
        return false;
      }
    }
    return true;
  }

  py::dict calls_;
  KernelLibrary library_{};
};

struct Launch {
  c10::OperatorHandle op;
  std::unique_ptr<Call> call;
  void* group;
  void* event;
  std::size_t slot;
};

struct Failure {
  std::size_t position;
  bool open;
  std::string message;
};

std::string status_message(const char* call, int status) {
  return std::string(call) + " returned " + std::to_string(status);
}

c10::IValue convert(const py::handle& value, const c10::Argument& argument) {
  try {
    return torch::jit::toIValue(value, argument.real_type());
  } catch (const std::exception&) {
    TORCH_CHECK_VALUE(
        false,
        "argument '",
        argument.name(),
        "' takes ",
        argument.real_type()->annotation_str(),
        ", found ",
        py::repr(py::type::of(value)).cast<std::string>());
  }
}

class Launches {
 public:
  // `kernels` may be empty: then every launch goes through the dispatcher.
  Launches(const py::dict& calls, py::dict kernels) : calls_(calls), kernels_(std::move(kernels)) {}

  void add(
      const std::string& name,
      const std::string& overload,
      const py::dict& given,
      std::uint64_t group,
      std::uint64_t event,
      std::size_t slot) {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto& schema = op.schema();
    Values arguments;
    arguments.reserve(schema.arguments().size());
    std::size_t used = 0;
    for (const auto& argument : schema.arguments()) {
      const py::str key(argument.name());
      if (given.contains(key)) {
        arguments.push_back(share(convert(given[key], argument)));
        ++used;
      } else {
        TORCH_CHECK_VALUE(
            argument.default_value().has_value(), name, ": argument '", argument.name(), "' is missing");
        arguments.push_back(share(*argument.default_value()));
      }
    }
    TORCH_CHECK_VALUE(used == given.size(), name, ": an argument is unknown to the operator");
    auto call = kernels_.make_call(op, arguments);
    if (!call) {
      call = std::make_unique<OperatorCall>(op, arguments);
      ++num_dispatched_;
    }
    num_slots_ = std::max(num_slots_, slot + 1);
    launches_.push_back(Launch{
        std::move(op), std::move(call), as_pointer<void*>(group), as_pointer<void*>(event), slot});
  }

  // How many launches go through the dispatcher, to the current stream.
  std::size_t num_dispatched() const { return num_dispatched_; }

  // Declares an argument of lengths of a parameter group; all arguments of all groups have to be, or none.
  void add_lengths(
      const std::string& group,
      const std::string& argument,
      std::size_t slot,
      std::size_t count,
      bool cumulative,
      std::optional<std::int64_t> total,
      std::optional<std::int64_t> maximum) {
    arguments_.add(group, argument, slot, LengthRule{count, cumulative, total, maximum});
  }

  // The same for an argument that is a tensor.
  void add_tensor(
      const std::string& group,
      const std::string& argument,
      std::size_t slot,
      std::vector<std::int64_t> sizes,
      at::ScalarType dtype,
      at::Device device) {
    arguments_.add(group, argument, slot, TensorForm{std::move(sizes), dtype, device});
  }

  // Gives the launches the arguments of a step, by group and name. Returns for each slot an empty dictionary where some
  // changed; or nothing, and then nothing was given: for the first step, and where a value breaks its rules.
  py::object take(const py::handle& groups) {
    auto given = arguments_.read(groups);
    if (!given) {
      return py::none();
    }
    std::vector<Shared*> held;
    held.reserve(given->size());
    for (const auto& each : *given) {
      const auto shared = find_shared(each.slot, each.name);
      if (shared == shared_.end() || each.tensor.defined() != shared->tensor.defined()) {
        return py::none();
      }
      held.push_back(&*shared);
    }
    py::list changes(num_slots_);
    for (std::size_t slot = 0; slot < num_slots_; ++slot) {
      changes[slot] = py::none();
    }
    for (std::size_t index = 0; index < held.size(); ++index) {
      auto& shared = *held[index];
      auto& each = (*given)[index];
      if (each.tensor.defined()) {
        if (is_same_memory(shared.tensor, each.tensor)) {
          continue;
        }
        shared.tensor = each.tensor;
        give(each.slot, each.name, Value(std::move(each.tensor)));
      } else if (shared.integers->values() != each.lengths) {
        shared.integers->assign(std::move(each.lengths));
      } else {
        continue;
      }
      changes[each.slot] = py::dict();
    }
    return changes;
  }

  // `values` are for each slot the arguments to replace in its launches, or nothing where none changed. Returns nothing, or
  // where it failed, whether an update is open, and why.
  py::object run(std::uint64_t stream, const py::sequence& values) {
    TORCH_CHECK_INDEX(values.size() >= num_slots_, "values for ", num_slots_, " slots expected");
    std::vector<bool> changed;
    changed.reserve(values.size());
    for (const auto& of_slot : values) {
      changed.push_back(!of_slot.is_none());
      if (changed.back()) {
        for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(of_slot)) {
          set(changed.size() - 1, name, value);
        }
      }
    }
    std::optional<Failure> failure;
    {
      const py::gil_scoped_release unlocked;
      failure = issue(as_pointer<void*>(stream), changed);
    }
    if (!failure) {
      return py::none();
    }
    return py::make_tuple(failure->position, failure->open, failure->message);
  }

 private:
  // A list of integers that all launches of a slot read, or the tensor that all of them were given.
  struct Shared {
    std::size_t slot;
    std::string argument;
    std::shared_ptr<Integers> integers;
    at::Tensor tensor;
  };

  // Launches that are given the same tensor, such as a mask, share what they make of it.
  std::shared_ptr<const Value> share(c10::IValue given) {
    if (!given.isTensor() || !given.toTensor().defined()) {
      return std::make_shared<const Value>(std::move(given));
    }
    auto& known = tensors_[given.toTensor().unsafeGetTensorImpl()];
    if (!known) {
      known = std::make_shared<const Value>(std::move(given));
    }
    return known;
  }

  std::vector<Shared>::iterator find_shared(std::size_t slot, std::string_view argument) {
    return std::find_if(shared_.begin(), shared_.end(), [&](const Shared& each) {
      return each.slot == slot && each.argument == argument;
    });
  }

  // Replaces one argument of all launches of a slot; converted once.
  void set(std::size_t slot, const py::handle& key, const py::handle& value) {
    const auto name = py::cast<std::string_view>(key);
    const auto shared = find_shared(slot, name);
    if (shared != shared_.end()) {
      auto integers = shared->integers ? read_integers(value) : std::nullopt;
      if (integers) {
        shared->integers->assign(std::move(*integers));
        return;
      }
      // The launches are given something else below, so none reads this any more.
      shared_.erase(shared);
    }
    const auto launch =
        std::find_if(launches_.begin(), launches_.end(), [&](const Launch& each) { return each.slot == slot; });
    if (launch == launches_.end()) {
      return;
    }
    const auto& schema = launch->op.schema();
    const Value converted(convert(value, schema.arguments()[index_of(schema, name)]));
    const bool all_share = give(slot, name, converted);
    if (converted.integers && all_share) {
      shared_.push_back(Shared{slot, std::string(name), converted.integers, {}});
    } else if (converted.value.isTensor() && converted.value.toTensor().defined()) {
      shared_.push_back(Shared{slot, std::string(name), nullptr, converted.value.toTensor()});
    }
  }

  static std::size_t index_of(const c10::FunctionSchema& schema, std::string_view name) {
    const auto found = schema.argumentIndexWithName(name);
    TORCH_CHECK_VALUE(found.has_value(), "no argument '", name, "'");
    return static_cast<std::size_t>(*found);
  }

  // Gives a value to all launches of a slot. Returns whether all of them read its list of integers again in every run.
  bool give(std::size_t slot, std::string_view name, const Value& value) {
    bool all_share = true;
    for (auto& launch : launches_) {
      if (launch.slot == slot) {
        launch.call->set(index_of(launch.op.schema(), name), value);
        all_share = all_share && launch.call->shares_integers();
      }
    }
    return all_share;
  }

  std::optional<Failure> issue(void* stream, const std::vector<bool>& changed) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (std::size_t position = 0; position < launches_.size(); ++position) {
      const auto& launch = launches_[position];
      if (changed[launch.slot]) {
        int status = calls_.begin(stream, launch.group);
        if (status != 0) {
          return Failure{position, false, status_message("aclmdlRICaptureTaskUpdateBegin", status)};
        }
        try {
          launch.call->run(stream);
        } catch (const c10::Error& error) {
          return Failure{position, true, error.what_without_backtrace()};
        } catch (const std::exception& error) {
          return Failure{position, true, error.what()};
        }
        status = calls_.end(stream);
        if (status != 0) {
          return Failure{position, false, status_message("aclmdlRICaptureTaskUpdateEnd", status)};
        }
      }
      const int status = calls_.set_external(launch.event, stream);
      if (status != 0) {
        return Failure{position, false, status_message("recording its external event", status)};
      }
    }
    return std::nullopt;
  }

  DeviceCalls calls_;
  Kernels kernels_;
  std::vector<Launch> launches_;
  // They keep the tensors, so an address stays that of the tensor.
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<const Value>> tensors_;
  std::vector<Shared> shared_;
  StepArguments arguments_;
  std::size_t num_slots_ = 0;
  std::size_t num_dispatched_ = 0;
};

} // namespace

PYBIND11_MODULE(attn_update_native, module) {
  // A full stream may block.
  const py::call_guard<py::gil_scoped_release> unlocked;
  py::class_<ReplayEvent>(module, "ReplayEvent", py::module_local()).def("wait", &ReplayEvent::wait, unlocked);
  py::class_<ReplayEvents>(module, "ReplayEvents", py::module_local())
      .def(py::init<const py::dict&>())
      .def("record", &ReplayEvents::record, unlocked);
  py::class_<Launches>(module, "Launches", py::module_local())
      .def(py::init<const py::dict&, py::dict>())
      .def("add", &Launches::add)
      .def("add_lengths", &Launches::add_lengths)
      .def("add_tensor", &Launches::add_tensor)
      .def("take", &Launches::take)
      .def("num_dispatched", &Launches::num_dispatched)
      .def("run", &Launches::run);
}
