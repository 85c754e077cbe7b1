#include "event.h"

#include <acl/acl_rt.h>

#include "clock/virtual_time.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "monitor.h"
#include "submission.h"

namespace {

constexpr int32_t kDeadlockCheckMilliseconds = 100;

using cann_sim::Capture;
using cann_sim::Event;
using cann_sim::EventPoint;
using cann_sim::Fail;
using cann_sim::GraphPoint;
using cann_sim::MakeTask;
using cann_sim::SharedEvent;
using cann_sim::Stream;
using cann_sim::StreamState;
using cann_sim::Task;
using cann_sim::TaskKind;
using cann_sim::TheMonitor;

std::shared_ptr<EventPoint> Latest(Event& event) {
  const std::lock_guard<std::mutex> lock(event.mutex);
  return event.latest;
}

bool IsDone(const std::shared_ptr<EventPoint>& point) {
  if (point == nullptr) {
    return true;
  }
  return TheMonitor().Look([&] {
    const bool done = point->done && !cann_sim::clock::IsInFuture(cann_sim::TimeOf(point->known));
    if (done) {
      cann_sim::TakeKnown(point->known);
    }
    return done;
  });
}

// The point of an external event stays the same: its flag.
std::shared_ptr<EventPoint> Flag(Event& event) {
  const std::lock_guard<std::mutex> lock(event.mutex);
  if (event.latest == nullptr) {
    event.latest = std::make_shared<EventPoint>();
  }
  return event.latest;
}

cann_sim::Task RecordTaskOf(std::shared_ptr<EventPoint> point) {
  return MakeTask(TaskKind::kEventRecord, [point = std::move(point)] {
    TheMonitor().Update([&] {
      point->time = cann_sim::clock::EventTime();
      point->known = cann_sim::TellKnown();
      point->failure = cann_sim::FailureOfThisStream();
      point->done = true;
    });
  });
}

// Behind a wait for the point: what became of the stream that recorded it.
std::shared_ptr<const cann_sim::StreamFailure> TakePoint(const EventPoint& point) {
  return TheMonitor().Look([&] {
    cann_sim::TakeKnown(point.known);
    return point.failure;
  });
}

std::string DescribeEvent(uint32_t event, const EventPoint& point) {
  const int32_t stream = point.recorded_on.load();
  return "event " + std::to_string(event) +
         (stream < 0 ? ", which was never recorded"
                     : ", whose record on stream " + std::to_string(stream) + " has not run or was reset");
}

std::string DescribeInGraph(uint32_t event) {
  return "event " + std::to_string(event) + ", whose record in the same graph has not run";
}

cann_sim::Task WaitTaskOf(uint32_t event, std::shared_ptr<EventPoint> point) {
  return MakeTask(TaskKind::kEventWait, [event, point = std::move(point)] {
    TheMonitor().Wait([&] { return DescribeEvent(event, *point); }, [&] { return point->done; });
    cann_sim::ThrowFailure(TakePoint(*point));
  });
}

aclError AwaitRecord(uint32_t event, const EventPoint& point) {
  std::string stuck;
  const auto is_stuck = [&] { return !(stuck = cann_sim::TheProgress().Stuck()).empty(); };
  const auto done = [&] { return point.done; };
  if (const cann_sim::clock::HostWait waiting; cann_sim::TheSchedule().fuzzes()) {
    cann_sim::TheSchedule().HostWait([&] { return TheMonitor().Look(done); },
                                     cann_sim::Schedule::Clock::time_point::max(), is_stuck);
  } else {
    if (cann_sim::Device* device = cann_sim::CurrentDevice(); device != nullptr) {
      device->WakeWorkers();
    }
    while (!TheMonitor().WaitFor(kDeadlockCheckMilliseconds, done) && !is_stuck()) {
    }
  }
  if (!stuck.empty()) {
    return Fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "synchronise event " + std::to_string(event) + ": deadlock: " + stuck);
  }
  cann_sim::clock::WakeHost(TheMonitor().Look([&] { return cann_sim::TimeOf(point.known); }));
  const std::shared_ptr<const cann_sim::StreamFailure> failure = TakePoint(point);
  return failure == nullptr ? ACL_SUCCESS
                            : Fail(failure->code, "synchronise event " + std::to_string(event) + ": " + failure->what);
}

aclError RefuseWhileCaptured(const char* function, Event& event) {
  const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
  if (event.capture.lock() == nullptr) {
    return ACL_SUCCESS;
  }
  return Fail(ACL_ERROR_RT_EVENT_CAPTURED,
              std::string(function) + ": the event is part of a capture that has not ended");
}

// An event is of a device that has one: the host's calls on it are rejected if that device has stopped.
aclError RefuseWhereStopped(const char* function) {
  cann_sim::Device* device = cann_sim::CurrentDevice();
  return device == nullptr ? ACL_SUCCESS : device->stop.Refuse(function);
}

aclError RefuseUnsupportedInCapture(const char* function) {
  return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
              std::string(function) + ": in a capture only events of aclrtCreateEventExWithFlag and external events work");
}

// With CaptureMutex() held.
aclError RecordInCapture(Stream& stream, Event& event) {
  const std::shared_ptr<Capture> capture = stream.capture;
  auto point = std::make_shared<GraphPoint>();
  point->branch = stream.branch;
  point->number = static_cast<uint32_t>(capture->graph->points.size()) + 1;
  const aclError error = cann_sim::RecordTask("aclrtRecordEvent", stream, MakeTask(TaskKind::kEventRecord, [point] {
                                                TheMonitor().Update([&] {
                                                  point->known = cann_sim::TellKnown();
                                                  point->done = true;
                                                });
                                              }, point->number),
                                              point);
  if (error == ACL_SUCCESS) {
    capture->graph->points.push_back(point);
    event.capture = capture;
    event.point = point;
  }
  return error;
}

// With CaptureMutex() held.
aclError WaitInCapture(const std::shared_ptr<Capture>& capture, Stream& stream, Event& event) {
  if (stream.capture == nullptr) {
    if (&stream == &stream.device.DefaultStream()) {
      const std::string reason = "aclrtStreamWaitEvent: the default stream cannot join a capture";
      cann_sim::Invalidate(*capture, reason);
      return Fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, reason);
    }
    const aclError error = cann_sim::Join("aclrtStreamWaitEvent", capture, stream);
    if (error != ACL_SUCCESS) {
      return error;
    }
  } else if (stream.capture != capture) {
    const std::string reason = "aclrtStreamWaitEvent: the event was recorded in another capture than the one of stream " +
                               std::to_string(stream.id);
    cann_sim::Invalidate(*capture, reason);
    cann_sim::Invalidate(*stream.capture, reason);
    return Fail(ACL_ERROR_STREAM_CAPTURE_CONFLICT, reason);
  }
  const std::shared_ptr<GraphPoint> point = event.point;
  const uint32_t number = event.number;
  const aclError error = cann_sim::RecordTask("aclrtStreamWaitEvent", stream, MakeTask(TaskKind::kEventWait, [point, number] {
                                                TheMonitor().Wait([&] { return DescribeInGraph(number); },
                                                                  [&] { return point->done; });
                                                cann_sim::TakeKnown(TheMonitor().Look([&] { return point->known; }));
                                              }, point->number, cann_sim::kEntriesOfWait));
  if (error == ACL_SUCCESS) {
    point->waited = true;
    point->waited_by_origin = point->waited_by_origin || stream.branch == 0;
  }
  return error;
}

// The refusals of what an event between processes cannot do have code 207000.
aclError RefuseShared(const char* function, const Event& event) {
  return event.shared == nullptr ? ACL_SUCCESS
                                 : Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                                        std::string(function) + ": an event between processes has none of this");
}

aclError SubmitShared(const char* function, Stream& stream, Task task) {
  if (stream.state.load() == StreamState::kCapturing) {
    return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                std::string(function) + ": an event between processes cannot be part of a capture");
  }
  return cann_sim::Submit(function, stream, std::move(task));
}

aclError CreateEvent(const char* function, aclrtEvent* event, uint32_t flags, bool renewable) {
  CANN_SIM_REQUIRE_USABLE(function);
  CANN_SIM_REQUIRE_POINTER(function, event);
  if (cann_sim::CurrentDevice() == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
  }
  *event = new Event(flags, renewable);
  return ACL_SUCCESS;
}

}  // namespace

namespace cann_sim {

uint32_t Event::NextNumber() {
  static std::atomic<uint32_t> made{0};
  return ++made;
}

}  // namespace cann_sim

extern "C" {

aclError aclrtCreateEvent(aclrtEvent* event) { return CreateEvent("aclrtCreateEvent", event, ACL_EVENT_TIME_LINE, false); }

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flags) {
  return CreateEvent("aclrtCreateEventWithFlag", event, flags, false);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flags) {
  if ((flags & ACL_EVENT_IPC) != 0) {
    return cann_sim::CreateSharedEvent(event, flags);
  }
  return CreateEvent("aclrtCreateEventExWithFlag", event, flags, true);
}

// Safe while tasks refer to the event: they own what they need of it.
aclError aclrtDestroyEvent(aclrtEvent handle) {
  CANN_SIM_REQUIRE_POINTER("aclrtDestroyEvent", handle);
  delete static_cast<Event*>(handle);
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtRecordEvent", stream_handle);
  CANN_SIM_REQUIRE_POINTER("aclrtRecordEvent", handle);
  Event& event = *static_cast<Event*>(handle);
  if (event.shared != nullptr) {
    return SubmitShared("aclrtRecordEvent", *stream, SharedEvent::RecordTask(event.shared));
  }
  if (event.is_external()) {
    std::shared_ptr<EventPoint> flag = Flag(event);
    flag->recorded_on.store(stream->id);
    return cann_sim::Submit("aclrtRecordEvent", *stream, RecordTaskOf(std::move(flag)));
  }
  {
    const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
    if (stream->state.load() == StreamState::kCapturing) {
      return event.renewable ? RecordInCapture(*stream, event) : RefuseUnsupportedInCapture("aclrtRecordEvent");
    }
    event.capture.reset();
    event.point.reset();
  }
  auto point = std::make_shared<EventPoint>();
  point->recorded_on.store(stream->id);
  {
    const std::lock_guard<std::mutex> lock(event.mutex);
    event.latest = point;
  }
  return cann_sim::Submit("aclrtRecordEvent", *stream, RecordTaskOf(std::move(point)));
}

aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtStreamWaitEvent", stream_handle);
  CANN_SIM_REQUIRE_POINTER("aclrtStreamWaitEvent", handle);
  Event& event = *static_cast<Event*>(handle);
  if (event.shared != nullptr) {
    return SubmitShared("aclrtStreamWaitEvent", *stream, SharedEvent::WaitTask(event.shared));
  }
  if (event.is_external()) {
    return cann_sim::Submit("aclrtStreamWaitEvent", *stream, WaitTaskOf(event.number, Flag(event)));
  }
  const std::shared_ptr<EventPoint> point = Latest(event);
  {
    const std::lock_guard<std::mutex> lock(cann_sim::CaptureMutex());
    if (const std::shared_ptr<Capture> capture = event.capture.lock(); capture != nullptr) {
      return WaitInCapture(capture, *stream, event);
    }
    if (stream->state.load() == StreamState::kCapturing) {
      if (!event.renewable) {
        return RefuseUnsupportedInCapture("aclrtStreamWaitEvent");
      }
      if (point != nullptr) {
        return Fail(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "aclrtStreamWaitEvent: captured stream " +
                                                         std::to_string(stream->id) +
                                                         " may not wait for an event recorded outside the capture");
      }
    }
  }
  // Nothing to wait for before the first record.
  return point == nullptr ? ACL_SUCCESS : cann_sim::Submit("aclrtStreamWaitEvent", *stream, WaitTaskOf(event.number, point));
}

aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream_handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtResetEvent", stream_handle);
  CANN_SIM_REQUIRE_POINTER("aclrtResetEvent", handle);
  Event& event = *static_cast<Event*>(handle);
  if (event.renewable) {
    return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "aclrtResetEvent: an event of aclrtCreateEventExWithFlag is recorded again without a reset");
  }
  const std::shared_ptr<EventPoint> point = Flag(event);
  return cann_sim::Submit("aclrtResetEvent", *stream, MakeTask(TaskKind::kEventReset, [point] {
                            TheMonitor().Update([&] { point->done = false; });
                          }));
}

aclError aclrtSynchronizeEvent(aclrtEvent handle) {
  CANN_SIM_REQUIRE_USABLE("aclrtSynchronizeEvent");
  CANN_SIM_REQUIRE_POINTER("aclrtSynchronizeEvent", handle);
  Event& event = *static_cast<Event*>(handle);
  if (const aclError error = RefuseWhileCaptured("aclrtSynchronizeEvent", event); error != ACL_SUCCESS) {
    return error;
  }
  if (const aclError error = RefuseWhereStopped("aclrtSynchronizeEvent"); error != ACL_SUCCESS) {
    return error;
  }
  ++cann_sim::TheCounters().synchronisations;
  if (event.shared != nullptr) {
    event.shared->Await();
    return ACL_SUCCESS;
  }
  if (const std::shared_ptr<EventPoint> point = Latest(event); point != nullptr) {
    return AwaitRecord(event.number, *point);
  }
  return ACL_SUCCESS;
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  CANN_SIM_REQUIRE_USABLE("aclrtQueryEventStatus");
  CANN_SIM_REQUIRE_POINTER("aclrtQueryEventStatus", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtQueryEventStatus", status);
  Event& event = *static_cast<Event*>(handle);
  if (const aclError error = RefuseWhileCaptured("aclrtQueryEventStatus", event); error != ACL_SUCCESS) {
    return error;
  }
  if (const aclError error = RefuseWhereStopped("aclrtQueryEventStatus"); error != ACL_SUCCESS) {
    return error;
  }
  cann_sim::TheSchedule().HostPoint(1);
  const bool done = event.shared != nullptr ? event.shared->IsDone() : IsDone(Latest(event));
  *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtQueryEvent(aclrtEvent handle, aclrtEventStatus* status) {
  CANN_SIM_REQUIRE_POINTER("aclrtQueryEvent", status);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  const aclError error = aclrtQueryEventStatus(handle, &recorded);
  *status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  return error;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus* status) {
  CANN_SIM_REQUIRE_POINTER("aclrtQueryEventWaitStatus", status);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  const aclError error = aclrtQueryEventStatus(handle, &recorded);
  *status =
      recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return error;
}

aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent start_handle, aclrtEvent end_handle) {
  CANN_SIM_REQUIRE_POINTER("aclrtEventElapsedTime", milliseconds);
  CANN_SIM_REQUIRE_POINTER("aclrtEventElapsedTime", start_handle);
  CANN_SIM_REQUIRE_POINTER("aclrtEventElapsedTime", end_handle);
  for (aclrtEvent handle : {start_handle, end_handle}) {
    Event& event = *static_cast<Event*>(handle);
    aclError error = RefuseWhileCaptured("aclrtEventElapsedTime", event);
    error = error != ACL_SUCCESS ? error : RefuseShared("aclrtEventElapsedTime", event);
    if (error != ACL_SUCCESS) {
      return error;
    }
  }
  const std::shared_ptr<EventPoint> start = Latest(*static_cast<Event*>(start_handle));
  const std::shared_ptr<EventPoint> end = Latest(*static_cast<Event*>(end_handle));
  if (start == nullptr || end == nullptr || !IsDone(start) || !IsDone(end)) {
    return Fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                "aclrtEventElapsedTime: both events must have been recorded and have happened");
  }
  const auto elapsed = TheMonitor().Look([&] { return end->time - start->time; });
  if (elapsed.count() < 0) {
    return Fail(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "aclrtEventElapsedTime: the end event happened before the start");
  }
  *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
  return ACL_SUCCESS;
}

aclError aclrtEventGetTimestamp(aclrtEvent handle, uint64_t* microseconds) {
  CANN_SIM_REQUIRE_POINTER("aclrtEventGetTimestamp", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtEventGetTimestamp", microseconds);
  Event& event = *static_cast<Event*>(handle);
  if (const aclError error = RefuseShared("aclrtEventGetTimestamp", event); error != ACL_SUCCESS) {
    return error;
  }
  const std::shared_ptr<EventPoint> point = Latest(event);
  if (point == nullptr || !IsDone(point)) {
    return Fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "aclrtEventGetTimestamp: the event has not happened");
  }
  const auto time = TheMonitor().Look([&] { return point->time.time_since_epoch(); });
  *microseconds = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  return ACL_SUCCESS;
}

}  // extern "C"
