// Failures of work on the device: those with a code of their own, those that came over from the stream that an event was
// recorded on, and who wants to know of any.
#pragma once

#include <acl/acl_base_rt.h>

#include <atomic>
#include <memory>
#include <mutex>
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

// That of the stream whose worker calls; null where it is well. A record that runs nevertheless passes it to the waiting
// streams.
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

// The failure that a device stopped at. If aclrtSetStreamFailureMode was called, as torch_npu does for each of its
// streams, the first failure of a task stops all streams of the device: tasks are dropped, waits end, nothing is taken any
// more and every synchronisation returns the code again, until aclrtDeviceTaskAbort.
class DeviceStop {
 public:
  void AskFor() { asked_for_.store(true); }
  // Keeps the first failure, if it was set to stop at one.
  void At(const std::shared_ptr<const StreamFailure>& failure);
  // Stops it in any case; ends with Forget.
  void Abort(const std::string& why);
  void Forget();
  // Null while the device works.
  std::shared_ptr<const StreamFailure> failure() const;
  // The same for an answer to the host, which knows of it from then on.
  std::shared_ptr<const StreamFailure> TellHost();
  // What a device stopped at that was not yet reported to the host; empty if there is none.
  std::string Untold() const;
  // Refuses what a device that has stopped does not take; success where it works.
  aclError Refuse(const char* function);

 private:
  std::atomic<bool> asked_for_{false};
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<const StreamFailure> failure_;
  bool told_ = false;
};

// Of the device that the calling thread is a worker of; null for a thread of the host.
const DeviceStop* StopOfThisDevice();
void WorkForDevice(const DeviceStop& stop);

// Notified of every failed stream of this process, by the worker of the stream.
using FailureObserver = void (*)(const std::string& what);
CANN_SIM_EXPORT void ObserveFailures(FailureObserver observer);
void TellOfFailure(const std::string& what);

}  // namespace cann_sim
