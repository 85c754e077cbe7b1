// The error by which an operator refuses its arguments.
#pragma once

#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// Status codes of the two-phase interface (CANN documentation, "aclnn return codes").
constexpr int kStatusOk = 0;
constexpr int kStatusNullArgument = 161001;
constexpr int kStatusInvalidArgument = 161002;
constexpr int kStatusKernelNotFound = 561112;

// Thrown while an operator validates its arguments; the entry point turns it into `status` and an error message.
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(const std::string& message, int status = kStatusInvalidArgument)
      : std::runtime_error(message), status_(status) {}

  int status() const { return status_; }

 private:
  int status_;
};

// Makes `message` the error message of this thread and returns `status`. Takes away a code that an earlier failed call left
// behind, which torch_npu would report in place of `status`.
int Report(int status, const std::string& message);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
