// Events. One made by aclrtCreateEventExWithFlag can be recorded again and again: a wait refers to the record before it.
// One made by the older functions with ACL_EVENT_EXTERNAL is a flag: a record sets it, a reset clears it, a wait waits
// until it is set. One made with ACL_EVENT_IPC is shared between processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "capture.h"
#include "device_failure.h"
#include "order.h"
#include "shared_event.h"

namespace cann_sim {

// One record of an event.
struct EventPoint {
  bool done = false;  // guarded by the monitor, as are the time and the failure
  std::shared_ptr<const StreamFailure> failure;  // of the stream that recorded it
  Known known;                                   // what had happened before it
  std::atomic<int32_t> recorded_on{-1};  // the stream that last recorded it; none below 0
  std::chrono::steady_clock::time_point time;
};

struct Event {
  Event(uint32_t flags, bool renewable, std::shared_ptr<SharedEvent> shared = nullptr)
      : number(NextNumber()), flags(flags), renewable(renewable), shared(std::move(shared)) {}

  // In the order in which the process made its events, from 1.
  static uint32_t NextNumber();

  const uint32_t number;
  const uint32_t flags;
  const bool renewable;  // made by aclrtCreateEventExWithFlag

  bool is_external() const { return !renewable && (flags & ACL_EVENT_EXTERNAL) != 0; }

  const std::shared_ptr<SharedEvent> shared;  // null where the event belongs to one process

  std::mutex mutex;
  std::shared_ptr<EventPoint> latest;  // null before the first record

  // Where the latest record was captured. Guarded by CaptureMutex().
  std::weak_ptr<Capture> capture;
  std::shared_ptr<GraphPoint> point;
};

// Makes an event that can be shared between processes.
aclError CreateSharedEvent(aclrtEvent* event, uint32_t flags);

}  // namespace cann_sim
