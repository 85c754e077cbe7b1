#include "stream.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "device.h"
#include "error_message.h"
#include "monitor.h"
#include "progress.h"
#include "trace.h"

namespace cann_sim {

namespace {

constexpr std::chrono::milliseconds kDeadlockCheckInterval{100};
// A worker that has run dry looks again by itself for a while, so that a host that launches one small kernel after the
// other does not pay for waking it each time.
constexpr std::chrono::microseconds kNap{50};
constexpr int kNaps = 20;

}  // namespace

void Stream::Enqueue(Task task) {
  TheProgress().Note();
  bool wake = false;
  bool start = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(task));
    wake = sleeping_;
    sleeping_ = false;
    start = !started_;
    started_ = true;
  }
  if (start) {
    StartWorker([this] { Work(); });
  } else if (wake) {
    not_empty_.notify_one();
  }
  TheSchedule().Announce(lane_);
  TheSchedule().HostPoint(0);
}

bool Stream::Idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty() && !busy_;
}

bool Stream::Done() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopping_ || (queue_.empty() && !busy_);
}

aclError Stream::AwaitIdle(int32_t milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = milliseconds < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(milliseconds);
  std::string stuck;
  const auto is_stuck = [&] { return !(stuck = TheProgress().Stuck()).empty(); };
  Schedule::Outcome outcome = Schedule::Outcome::kDone;
  if (TheSchedule().fuzzes()) {
    outcome = TheSchedule().HostWait([this] { return Done(); }, end, is_stuck);
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto done = [this] { return stopping_ || (queue_.empty() && !busy_); };
    if (!done() && !busy_) {
      not_empty_.notify_one();  // the worker may take a nap
    }
    while (outcome == Schedule::Outcome::kDone && !done()) {
      if (idle_.wait_until(lock, std::min(Clock::now() + kDeadlockCheckInterval, end), done)) {
        break;
      }
      outcome = Clock::now() >= end ? Schedule::Outcome::kTimeout
                : is_stuck()        ? Schedule::Outcome::kStuck
                                    : Schedule::Outcome::kDone;
    }
  }
  if (outcome == Schedule::Outcome::kDone) {
    return ACL_SUCCESS;
  }
  const std::string why =
      outcome == Schedule::Outcome::kStuck ? "deadlock: " + stuck : "not done within " + std::to_string(milliseconds) + " ms";
  return Fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "synchronise stream " + std::to_string(id) + ": " + why);
}

aclError Stream::Synchronize(int32_t milliseconds) {
  if (const aclError error = AwaitIdle(milliseconds); error != ACL_SUCCESS) {
    return error;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ == ACL_SUCCESS) {
    return ACL_SUCCESS;
  }
  const aclError error = error_;
  error_ = ACL_SUCCESS;
  return Fail(error, "stream " + std::to_string(id) + ": " + std::move(error_message_));
}

void Stream::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  not_empty_.notify_all();
  idle_.notify_all();
}

void Stream::DropTasks() {
  std::deque<Task> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped.swap(queue_);
  }
  // Without the lock: a host that waits under a fuzzed schedule looks at the stream with the schedule's lock held.
  TheSchedule().Withdraw(lane_);
}

void Stream::AwaitTask(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return stopping_ || !queue_.empty(); };
  for (int nap = 0; nap < kNaps && !TheSchedule().fuzzes(); ++nap) {
    if (ready() || not_empty_.wait_for(lock, kNap, ready)) {
      return;
    }
  }
  sleeping_ = queue_.empty();
  not_empty_.wait(lock, ready);
  sleeping_ = false;
}

void Stream::Work() {
  TraceAsStream(device.id, id);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    AwaitTask(lock);
    if (stopping_) {
      return;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    const bool failed = error_ != ACL_SUCCESS;
    lock.unlock();
    TheSchedule().Begin(lane_);
    if (!failed || Signals(task.kind)) {
      Run(task);
    }
    task = {};  // frees what the task owned before anybody is told that it is done
    lock.lock();
    busy_ = false;
    if (queue_.empty()) {
      idle_.notify_all();
    }
    if (Schedule::InTurn()) {
      lock.unlock();
      TheSchedule().End(lane_);
      lock.lock();
    }
  }
}

void Stream::Run(Task& task) {
  try {
    const Progress::Run run("stream " + std::to_string(id));
    const Span span(task);
    FailOnPurpose(task);
    task.run();
  } catch (const Stopped&) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  } catch (const std::exception& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = task.kind == TaskKind::kReplay ? ACL_ERROR_RT_MODEL_EXECUTE : ACL_ERROR_RT_AICORE_EXCEPTION;
    error_message_ = task.name + " failed on the device: " + failure.what();
  }
  if (task.kind == TaskKind::kKernel || task.kind == TaskKind::kMemoryCopy || task.kind == TaskKind::kMemorySet) {
    TheMonitor().MemoryChanged();
  }
}

Stream* FindStream(const char* function, aclrtStream handle, aclError& error) {
  if (handle == nullptr) {
    Device* device = CurrentDevice();
    if (device == nullptr) {
      error = Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
      return nullptr;
    }
    return &device->DefaultStream();
  }
  auto* stream = static_cast<Stream*>(handle);
  if (stream->state.load(std::memory_order_relaxed) == StreamState::kDestroyed) {
    error = Fail(ACL_ERROR_RT_STREAM_CONTEXT,
                 std::string(function) + ": stream " + std::to_string(stream->id) + " was destroyed");
    return nullptr;
  }
  return stream;
}

}  // namespace cann_sim
