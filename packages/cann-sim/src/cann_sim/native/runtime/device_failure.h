// Failures of work on the device: those with a code of their own, those that came over from the stream that an event was
// recorded on, and who wants to know of any.
#pragma once

#include <acl/acl_base_rt.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "launch.h"

namespace cann_sim {

// Thrown by a kernel. The next synchronisation of its stream returns the code; of another exception it returns 507015.
class CANN_SIM_EXPORT DeviceFailure : public std::runtime_error {
 public:
  DeviceFailure(aclError code, const std::string& what);
  ~DeviceFailure() override;

  aclError code() const { return code_; }

 private:
  aclError code_;
};

// Why the tasks of a stream are skipped.
struct StreamFailure {
  aclError code;
  std::string what;
};

// That of the stream whose worker calls; null where it is well. A record that runs nevertheless hands it to those who wait.
std::shared_ptr<const StreamFailure> FailureOfThisStream();
// Throws where there is one.
void ThrowFailure(const std::shared_ptr<const StreamFailure>& failure);

// While it lives, the calling worker's stream has this failure.
class WithFailure {
 public:
  explicit WithFailure(std::shared_ptr<const StreamFailure> failure);
  ~WithFailure();
  WithFailure(const WithFailure&) = delete;
  WithFailure& operator=(const WithFailure&) = delete;
};

// Is told of every stream of this process that fails, by the worker of the stream.
using FailureObserver = void (*)(const std::string& what);
CANN_SIM_EXPORT void ObserveFailures(FailureObserver observer);
void TellOfFailure(const std::string& what);

}  // namespace cann_sim
