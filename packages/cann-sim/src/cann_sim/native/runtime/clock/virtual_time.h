// Virtual time (CANN_SIM_CLOCK): when each task would begin and end on a device of the SoC, in addition to the order in which
// the simulator happens to run them. A task begins at the latest of the end of the task before it on its lane, the time of what
// it waits for, and the time at which the host gave it to its stream; it lasts as its cost says. Lanes pass their time on
// where they pass on what happened before (order.h). All threads of the host share one clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "../task.h"

namespace cann_sim::clock {

using Nanoseconds = int64_t;

// Whether CANN_SIM_CLOCK is set. Where it is not, the calls below do nothing and return 0.
extern const bool kIsOn;

// Of the lane of this thread, or of the host.
Nanoseconds Now();
// The same on the clock of event times: the monotonic one where the clock is off.
std::chrono::steady_clock::time_point EventTime();

// The lane of this thread, or the host, is not earlier than this from now on.
void LiftTo(Nanoseconds time);
inline void WaitUntil(Nanoseconds time) {
  if (kIsOn) {
    LiftTo(time);
  }
}
// The latest time that this thread's lane waited for since it began its task.
Nanoseconds LatestAwaited();
// Work of the lane of this thread, or of the host.
void Spend(Nanoseconds duration);

// That of tasks that do nothing.
void SpendOnEmptyTasks(size_t count);

// The lane of this thread comes to a task, which the host had submitted before or which a graph has.
void ComeTo(const Task& task);
inline void BeginTask(const Task& task) {
  if (kIsOn) {
    ComeTo(task);
  }
}
// The task's own time, apart from what it runs: of most tasks before it, of a wait after it.
void SpendOn(const Task& task, bool is_behind);
inline void BeforeRun(const Task& task) {
  if (kIsOn) {
    SpendOn(task, false);
  }
}
inline void AfterRun(const Task& task) {
  if (kIsOn) {
    SpendOn(task, true);
  }
}

// The host gives a task to a stream; returns when it has.
Nanoseconds TimeOfSubmitting(const Task& task);
inline Nanoseconds Submit(const Task& task) { return kIsOn ? TimeOfSubmitting(task) : 0; }

// While it lives the host waits for the device: the time that passes is not its own.
class HostWait {
 public:
  HostWait();
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  Nanoseconds begin_ = 0;
};
// After such a wait: the host continues a little after what it waited for, immediately if that had happened.
void WakeHost(Nanoseconds awaited);
// Whether the host is not there yet: it cannot know what happens then. A host that queries repeatedly and does nothing else
// comes to it.
bool IsInFuture(Nanoseconds time);

// How long a copy takes, inside the device or over the link to the host.
Nanoseconds CopyTime(size_t bytes, bool is_over_link);

}  // namespace cann_sim::clock
