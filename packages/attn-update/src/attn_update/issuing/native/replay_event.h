// Events after replays, recorded and waited for without torch's launch queue.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "device_calls.h"

namespace attn_update {

// Recorded once, by its constructor. It may be dropped while streams wait for it: CANN frees an event created for
// synchronisation only when its work is over, which torch_npu relies on for its own.
class ReplayEvent {
 public:
  ReplayEvent(const DeviceCalls& calls, void* stream) : calls_(calls) {
    check("aclrtCreateEventExWithFlag", calls_.create_event(&event_, kSynchronizesStreams));
    const int status = calls_.record_event(event_, stream);
    if (status != 0) {
      calls_.destroy_event(event_);
      check("aclrtRecordEvent", status);
    }
  }

  ReplayEvent(const ReplayEvent&) = delete;
  ReplayEvent& operator=(const ReplayEvent&) = delete;
  ~ReplayEvent() { calls_.destroy_event(event_); }

  // Lets all later work of the stream wait.
  void wait(std::uint64_t stream) const {
    check("aclrtStreamWaitEvent", calls_.wait_event(as_pointer<void*>(stream), event_));
  }

 private:
  // ACL_EVENT_SYNC of acl/acl_rt.h.
  static constexpr std::uint32_t kSynchronizesStreams = 1;

  static void check(const char* call, int status) {
    if (status != 0) {
      throw std::runtime_error(std::string(call) + " returned " + std::to_string(status));
    }
  }

  DeviceCalls calls_;
  void* event_ = nullptr;
};

// Makes them on one device.
class ReplayEvents {
 public:
  explicit ReplayEvents(const pybind11::dict& calls) : calls_(calls) {}

  // Everything that torch queued for the stream must have been flushed.
  std::unique_ptr<ReplayEvent> record(std::uint64_t stream) const {
    return std::make_unique<ReplayEvent>(calls_, as_pointer<void*>(stream));
  }

 private:
  DeviceCalls calls_;
};

}  // namespace attn_update
