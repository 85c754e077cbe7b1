#include "device_failure.h"

#include <atomic>
#include <utility>

namespace {

thread_local std::shared_ptr<const cann_sim::StreamFailure> failure_of_this_stream;
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

void ObserveFailures(FailureObserver observer) { failure_observer.store(observer); }

void TellOfFailure(const std::string& what) {
  if (const FailureObserver observer = failure_observer.load(); observer != nullptr) {
    observer(what);
  }
}

}  // namespace cann_sim
