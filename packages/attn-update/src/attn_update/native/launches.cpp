// The launches of one update plan, issued in one call without the interpreter lock.
//
// Built at first use by attn_update.native_build against the torch of the process, and against
// nothing else: the calls of the device come in as addresses of CANN's public C functions.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// The C interface of CANN 8 (acl/acl_rt.h); 0 is success.
using BeginUpdate = int (*)(void* stream, void* group);
using EndUpdate = int (*)(void* stream);
using WriteValue = int (*)(void* word, std::uint64_t value, std::uint32_t flag, void* stream);
using RecordEvent = int (*)(void* event, void* stream);

template <typename T>
T as_pointer(std::uint64_t address) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(address));
}

std::uint64_t address_of(const py::dict& calls, const char* name) {
  return calls.contains(name) ? calls[name].cast<std::uint64_t>() : 0;
}

struct Calls {
  explicit Calls(const py::dict& calls)
      : begin(as_pointer<BeginUpdate>(address_of(calls, "aclmdlRICaptureTaskUpdateBegin"))),
        end(as_pointer<EndUpdate>(address_of(calls, "aclmdlRICaptureTaskUpdateEnd"))),
        write(as_pointer<WriteValue>(address_of(calls, "aclrtValueWrite"))),
        record(as_pointer<RecordEvent>(address_of(calls, "aclrtRecordEvent"))) {
    TORCH_CHECK_VALUE(begin != nullptr && end != nullptr, "the calls of a task update are missing");
    TORCH_CHECK_VALUE(
        (write != nullptr) != (record != nullptr),
        "expected one way to record an external event, aclrtValueWrite or aclrtRecordEvent");
  }

  // An external event is a word where the device can wait for a value, else an event of its own.
  int record_event(void* event, void* stream) const {
    return write != nullptr ? write(event, 1, 0, stream) : record(event, stream);
  }

  BeginUpdate begin;
  EndUpdate end;
  WriteValue write;
  RecordEvent record;
};

// A value of an argument. Integers are unpacked once, however many launches share them.
struct Value {
  explicit Value(c10::IValue given) : value(std::move(given)) {
    if (value.isIntList()) {
      const auto list = value.toIntVector();
      integers = std::make_shared<const std::vector<c10::SymInt>>(list.begin(), list.end());
    }
  }

  c10::IValue value;
  std::shared_ptr<const std::vector<c10::SymInt>> integers;
};

// One call of an operator with its arguments.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;
  virtual void set(std::size_t index, const Value& value) = 0;
  virtual void run() = 0;
  virtual bool is_typed() const { return false; }
};

// Any operator. Every call unpacks all arguments anew.
class BoxedCall : public Call {
 public:
  BoxedCall(c10::OperatorHandle op, const std::vector<Value>& values) : op_(std::move(op)) {
    for (const auto& value : values) {
      arguments_.push_back(value.value);
    }
  }

  void set(std::size_t index, const Value& value) override { arguments_[index] = value.value; }

  void run() override {
    torch::jit::Stack stack = arguments_;
    op_.callBoxed(stack);
  }

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
};

// How a parameter of a C++ function is kept between calls.
template <typename Parameter>
struct Kept;

template <>
struct Kept<const at::Tensor&> {
  explicit Kept(const Value& value) : tensor(value.value.toTensor()) {}
  const at::Tensor& get() const { return tensor; }
  at::Tensor tensor;
};

template <>
struct Kept<const std::optional<at::Tensor>&> {
  explicit Kept(const Value& value) : tensor(value.value.toOptional<at::Tensor>()) {}
  const std::optional<at::Tensor>& get() const { return tensor; }
  std::optional<at::Tensor> tensor;
};

template <>
struct Kept<at::OptionalSymIntArrayRef> {
  explicit Kept(const Value& value) : integers(value.integers) {
    TORCH_CHECK_VALUE(integers || value.value.isNone(), "expected a list of integers or None");
  }
  at::OptionalSymIntArrayRef get() const {
    return integers ? at::OptionalSymIntArrayRef(*integers) : at::OptionalSymIntArrayRef();
  }
  std::shared_ptr<const std::vector<c10::SymInt>> integers;
};

template <>
struct Kept<std::optional<std::int64_t>> {
  explicit Kept(const Value& value) : integer(value.value.toOptional<std::int64_t>()) {}
  std::optional<std::int64_t> get() const { return integer; }
  std::optional<std::int64_t> integer;
};

template <>
struct Kept<std::string_view> {
  explicit Kept(const Value& value) : text(value.value.toStringRef()) {}
  std::string_view get() const { return text; }
  std::string text;
};

template <>
struct Kept<at::TensorList> {
  explicit Kept(const Value& value) : tensors(value.value.toTensorVector()) {}
  at::TensorList get() const { return tensors; }
  std::vector<at::Tensor> tensors;
};

template <typename Plain>
  requires std::is_arithmetic_v<Plain>
struct Kept<Plain> {
  explicit Kept(const Value& value) : plain(value.value.to<Plain>()) {}
  Plain get() const { return plain; }
  Plain plain;
};

// An operator whose C++ function is known: nothing is unpacked in a call.
template <typename Signature>
class TypedCall;

template <typename Result, typename... Parameters>
class TypedCall<Result(Parameters...)> : public Call {
 public:
  static constexpr std::size_t kNumParameters = sizeof...(Parameters);

  TypedCall(const c10::OperatorHandle& op, const std::vector<Value>& values)
      : TypedCall(op, values, std::index_sequence_for<Parameters...>()) {}

  void set(std::size_t index, const Value& value) override {
    set_one(index, value, std::index_sequence_for<Parameters...>());
  }

  bool is_typed() const override { return true; }

  void run() override {
    std::apply([this](const auto&... kept) { op_.call(kept.get()...); }, kept_);
  }

 private:
  template <std::size_t... Index>
  TypedCall(const c10::OperatorHandle& op, const std::vector<Value>& values, std::index_sequence<Index...>)
      : op_(op.typed<Result(Parameters...)>()), kept_(Kept<Parameters>(values[Index])...) {}

  template <std::size_t... Index>
  void set_one(std::size_t index, const Value& value, std::index_sequence<Index...>) {
    ((index == Index ? (std::get<Index>(kept_) = Kept<Parameters>(value), 0) : 0), ...);
  }

  c10::TypedOperatorHandle<Result(Parameters...)> op_;
  std::tuple<Kept<Parameters>...> kept_;
};

using T = const at::Tensor&;
using OT = const std::optional<at::Tensor>&;
using OL = at::OptionalSymIntArrayRef;
using I = std::int64_t;
using OI = std::optional<std::int64_t>;
using S = std::string_view;

// npu_fused_infer_attention_score.out of torch_npu 2.13.
using FusedInferAttentionV1 = std::tuple<at::Tensor, at::Tensor>(
    T, T, T, OT, OT, OL, OL, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OL, OT, OT, OT,
    I, double, I, I, S, I, I, I, I, I, I, I, bool, OT, at::TensorList);

// npu_fused_infer_attention_score_v2.out of torch_npu 2.13.
using FusedInferAttentionV2 = std::tuple<at::Tensor, at::Tensor>(
    T, T, T, OT, OT, OT, OT, OL, OL, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, OT, I, I, double, I, I, S,
    I, I, I, I, I, I, bool, OI, OI, OI, OI, OI, OI, OI, OI, OI, OI, OI, OI, OT, at::TensorList);

// Returns nothing where the operator has another signature than this one.
template <typename Signature>
std::unique_ptr<Call> make_typed(const c10::OperatorHandle& op, const std::vector<Value>& values) {
  if (values.size() != TypedCall<Signature>::kNumParameters) {
    return nullptr;
  }
  try {
    return std::make_unique<TypedCall<Signature>>(op, values);
  } catch (const c10::Error&) {
    // Of another version of torch_npu; unpacking is slower and as right.
    return nullptr;
  }
}

std::unique_ptr<Call> make_call(const c10::OperatorHandle& op, const std::vector<Value>& values) {
  const auto& schema = op.schema();
  std::unique_ptr<Call> call;
  if (schema.overload_name() == "out" && schema.name() == "npu::npu_fused_infer_attention_score") {
    call = make_typed<FusedInferAttentionV1>(op, values);
  } else if (schema.overload_name() == "out" && schema.name() == "npu::npu_fused_infer_attention_score_v2") {
    call = make_typed<FusedInferAttentionV2>(op, values);
  }
  return call ? std::move(call) : std::make_unique<BoxedCall>(op, values);
}

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
  explicit Launches(const py::dict& calls) : calls_(calls) {}

  void add(
      const std::string& name,
      const std::string& overload,
      const py::dict& given,
      std::uint64_t group,
      std::uint64_t event,
      std::size_t slot) {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto& schema = op.schema();
    std::vector<Value> arguments;
    arguments.reserve(schema.arguments().size());
    std::size_t used = 0;
    for (const auto& argument : schema.arguments()) {
      const py::str key(argument.name());
      if (given.contains(key)) {
        arguments.emplace_back(convert(given[key], argument));
        ++used;
      } else {
        TORCH_CHECK_VALUE(
            argument.default_value().has_value(), name, ": argument '", argument.name(), "' is missing");
        arguments.emplace_back(*argument.default_value());
      }
    }
    TORCH_CHECK_VALUE(used == given.size(), name, ": an argument is unknown to the operator");
    auto call = make_call(op, arguments);
    launches_.push_back(Launch{
        std::move(op), std::move(call), as_pointer<void*>(group), as_pointer<void*>(event), slot});
  }

  // Replaces one argument of all launches of a slot; converted once.
  void set(std::size_t slot, const std::string& name, const py::object& value) {
    std::optional<Value> converted;
    int index = 0;
    for (auto& launch : launches_) {
      if (launch.slot != slot) {
        continue;
      }
      if (!converted) {
        const auto found = launch.op.schema().argumentIndexWithName(name);
        TORCH_CHECK_VALUE(found.has_value(), "no argument '", name, "'");
        index = *found;
        converted = Value(convert(value, launch.op.schema().arguments()[index]));
      }
      launch.call->set(static_cast<std::size_t>(index), *converted);
    }
  }

  // How many launches call the C++ function of their operator, without unpacking.
  std::size_t num_typed() const {
    std::size_t count = 0;
    for (const auto& launch : launches_) {
      count += launch.call->is_typed() ? 1 : 0;
    }
    return count;
  }

  // Returns nothing, or where it failed, whether an update is open, and why.
  py::object run(std::uint64_t stream, const std::vector<bool>& changed) {
    for (const auto& launch : launches_) {
      TORCH_CHECK_INDEX(launch.slot < changed.size(), "slot out of range");
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
          launch.call->run();
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
      const int status = calls_.record_event(launch.event, stream);
      if (status != 0) {
        return Failure{position, false, status_message("recording its external event", status)};
      }
    }
    return std::nullopt;
  }

  Calls calls_;
  std::vector<Launch> launches_;
};

} // namespace

PYBIND11_MODULE(attn_update_native, module) {
  py::class_<Launches>(module, "Launches", py::module_local())
      .def(py::init<const py::dict&>())
      .def("add", &Launches::add)
      .def("set", &Launches::set)
      .def("num_typed", &Launches::num_typed)
      .def("run", &Launches::run);
}
