// A launch that is issued again at every step, and the values of its arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace attn_update {

// A list of integers; unpacked once, however many launches share it.
class Integers {
 public:
  explicit Integers(std::vector<std::int64_t> given) : values_(std::move(given)) {}

  const std::vector<std::int64_t>& values() const { return values_; }

  // Replaces them for all launches that share the list.
  void assign(std::vector<std::int64_t> given) {
    values_ = std::move(given);
    array_.reset();
  }

  // An aclIntArray of the values, made by the first call that takes one. Valid until `assign`.
  template <typename Make>
  void* array(const Make& make) {
    if (!array_) {
      array_ = make(values_);
    }
    return array_.get();
  }

 private:
  std::vector<std::int64_t> values_;
  std::shared_ptr<void> array_;
};

// A value of an argument, one for all launches that take it, with what they make of it for a kernel: each at the first
// launch that needs it. Little memory for each launch is what keeps all of them in the cache.
struct Value {
  explicit Value(c10::IValue given) : value(std::move(given)) {
    if (value.isIntList()) {
      integers = std::make_shared<Integers>(value.toIntVector());
    }
  }

  c10::IValue value;
  std::shared_ptr<Integers> integers;
  mutable std::shared_ptr<void> described;
  mutable std::shared_ptr<void> described_list;
};

using Values = std::vector<std::shared_ptr<const Value>>;

// One call of an operator with its arguments, which are indexed as in the operator's schema.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;
  virtual void set(std::size_t index, const Value& value) = 0;
  // Whether it reads a list of integers again in every run, so that it may be assigned to.
  virtual bool shares_integers() const { return false; }
  // Throws where the launch is refused. `stream` is an aclrtStream.
  virtual void run(void* stream) = 0;
};

// Through torch's dispatcher, on the current stream of the thread, which must be `stream`. Any operator; every call unpacks
// all arguments again.
class OperatorCall : public Call {
 public:
  OperatorCall(c10::OperatorHandle op, const Values& values) : op_(std::move(op)) {
    for (const auto& value : values) {
      arguments_.push_back(value->value);
    }
  }

  void set(std::size_t index, const Value& value) override { arguments_[index] = value.value; }

  void run(void* /*stream*/) override {
    torch::jit::Stack stack = arguments_;
    op_.callBoxed(stack);
  }

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
};

}  // namespace attn_update
