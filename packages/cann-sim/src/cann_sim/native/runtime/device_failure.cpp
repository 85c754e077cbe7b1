#include "device_failure.h"

#include <atomic>
#include <utility>

#include "error_message.h"

namespace {

thread_local std::shared_ptr<const cann_sim::StreamFailure> failure_of_this_stream;
thread_local const cann_sim::DeviceStop* stop_of_this_device = nullptr;
std::atomic<cann_sim::FailureObserver> failure_observer{nullptr};

}  // namespace

namespace cann_sim {

DeviceFailure::DeviceFailure(aclError code, const std::string& what) : std::runtime_error(what), code_(code) {}

DeviceFailure::~DeviceFailure() = default;

std::shared_ptr<const StreamFailure> FailureOfThisStream() { return failure_of_this_stream; }

void ThrowFailure(const std::shared_ptr<const StreamFailure>& failure) {
  if (failure != nullptr) {
    throw DeviceFailure(failure->code, failure->what);
  }
}

WithFailure::WithFailure(std::shared_ptr<const StreamFailure> failure) { failure_of_this_stream = std::move(failure); }

WithFailure::~WithFailure() { failure_of_this_stream.reset(); }

void DeviceStop::At(const std::shared_ptr<const StreamFailure>& failure) {
  if (!asked_for_.load()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ == nullptr) {
    failure_ = failure;
    stopped_.store(true);
  }
}

void DeviceStop::Abort(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_ = std::make_shared<const StreamFailure>(StreamFailure{ACL_ERROR_RT_DEVICE_TASK_ABORT, why});
  stopped_.store(true);
}

void DeviceStop::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.reset();
  told_ = false;
  stopped_.store(false);
}

std::shared_ptr<const StreamFailure> DeviceStop::TellHost() {
  std::shared_ptr<const StreamFailure> stopped = failure();
  if (stopped != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_ = true;
  }
  return stopped;
}

std::string DeviceStop::Untold() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_ == nullptr || told_ ? "" : failure_->what;
}

std::shared_ptr<const StreamFailure> DeviceStop::failure() const {
  if (!stopped_.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

aclError DeviceStop::Refuse(const char* function) {
  const std::shared_ptr<const StreamFailure> stopped = TellHost();
  return stopped == nullptr ? ACL_SUCCESS
                            : Fail(stopped->code, std::string(function) + ": the device has stopped at its first failure and "
                                                                          "takes nothing any more: " + stopped->what);
}

const DeviceStop* StopOfThisDevice() { return stop_of_this_device; }

void WorkForDevice(const DeviceStop& stop) { stop_of_this_device = &stop; }

void ObserveFailures(FailureObserver observer) { failure_observer.store(observer); }

void TellOfFailure(const std::string& what) {
  if (const FailureObserver observer = failure_observer.load(); observer != nullptr) {
    observer(what);
  }
}

}  // namespace cann_sim
