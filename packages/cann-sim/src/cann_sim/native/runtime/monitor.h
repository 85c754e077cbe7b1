// The one place where work of the device waits for other work of the device: events, values in memory, replays, callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "device_failure.h"
#include "progress.h"
#include "schedule.h"

namespace cann_sim {

// Thrown out of a wait when the process ends. A worker that catches it stops.
struct Stopped : std::exception {};

class Monitor {
 public:
  // Changes state that a wait may look at, and wakes the waits.
  template <class Change>
  void Update(const Change& change) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      change();
    }
    TheProgress().Note();
    changed_.notify_all();
    TheSchedule().Reconsider();
  }

  // Reads state that Update changes.
  template <class Read>
  auto Look(const Read& read) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return read();
  }

  // Waits until the condition holds. Throws Stopped when the process ends first, and the failure that the device of this
  // worker stopped at where it does. `what` says what is waited for; it may be
  // called while the wait lasts, by another thread, and may not look at the monitor.
  template <class Condition>
  void Wait(const Progress::What& what, const Condition& condition) {
    if (Schedule::InTurn()) {
      WaitInTurn(what, condition);
      return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const DeviceStop* const device = StopOfThisDevice();
    bool holds = false;
    const Progress::Condition ready = [&] { return stopped_ || (holds = condition()) || IsStopped(device); };
    if (!ready()) {
      const Progress::Pause pause(what, ready);
      ++waits_;
      changed_.wait(lock, ready);
      --waits_;
    }
    if (stopped_) {
      throw Stopped();
    }
    if (!holds) {
      ThrowFailure(device->failure());
    }
  }

  // The same for a thread that has nothing to do until then.
  template <class Condition>
  void WaitForWork(const Condition& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || condition(); });
    if (stopped_) {
      throw Stopped();
    }
  }

  // The same with a limit in milliseconds, where below 0 is no limit; false when it was reached.
  template <class Condition>
  bool WaitFor(int32_t milliseconds, const Condition& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ready = [&] { return stopped_ || condition(); };
    if (milliseconds < 0) {
      changed_.wait(lock, ready);
      return true;
    }
    return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), ready);
  }

  // Wakes the waits where memory may have changed: a value wait may look at any address.
  void MemoryChanged() {
    bool wake = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      wake = waits_ > 0;
    }
    if (wake) {
      changed_.notify_all();
    }
    TheSchedule().Reconsider();
  }

  // Waits until the count is 0, also while the process ends: the count lives on the stack of the caller.
  void WaitForAll(const size_t& count) {
    const Progress::What what = [] { return "the side branches of the graph"; };
    const Progress::Condition none = [&count] { return count == 0; };
    const Progress::Pause pause(what, none);
    if (Schedule::InTurn()) {
      TheSchedule().Block([&] { return Look(none); });
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, none);
  }

  // Ends every wait, now and later.
  void Stop() {
    Update([this] { stopped_ = true; });
    TheSchedule().Stop();
  }
  bool stopped() {
    return Look([this] { return stopped_; });
  }

 private:
  static bool IsStopped(const DeviceStop* device) { return device != nullptr && device->failure() != nullptr; }

  template <class Condition>
  void WaitInTurn(const Progress::What& what, const Condition& condition) {
    const DeviceStop* const device = StopOfThisDevice();
    const Progress::Condition ready = [&] {
      return Look([&] { return stopped_ || condition() || IsStopped(device); });
    };
    if (!ready()) {
      const Progress::Pause pause(what, ready);
      TheSchedule().Block(ready);
    }
    if (stopped()) {
      throw Stopped();
    }
    if (IsStopped(device) && !Look(condition)) {
      ThrowFailure(device->failure());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int waits_ = 0;
  bool stopped_ = false;
};

// Never destroyed: worker threads may still wait while the process exits.
Monitor& TheMonitor();

}  // namespace cann_sim
