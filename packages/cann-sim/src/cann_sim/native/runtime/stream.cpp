#include "stream.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "clock/virtual_time.h"
#include "configuration.h"
#include "device.h"
#include "error_message.h"
#include "memory_check.h"
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
// Where only the cost of the host is measured, the worker keeps out of its way until somebody waits.
constexpr std::chrono::milliseconds kNapOfNullKernels{2};
constexpr int kNapsOfNullKernels = 2;

}  // namespace

void Stream::Enqueue(Task task) {
  TheProgress().Note();
  task.known = TellKnown();
  task.submitted = clock::Submit(task);
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
  const bool idle = queue_.empty() && !busy_ && !clock::IsInFuture(TimeOf(known_));
  if (idle) {
    TakeKnown(known_);
  }
  return idle;
}

void Stream::Wake() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!queue_.empty() && !busy_) {
    not_empty_.notify_one();
  }
}

bool Stream::Done() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopping_ || (queue_.empty() && !busy_);
}

aclError Stream::AwaitIdle(int32_t milliseconds) {
  using Clock = std::chrono::steady_clock;
  const clock::HostWait waiting;
  const auto end = milliseconds < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(milliseconds);
  std::string stuck;
  const auto is_stuck = [&] { return !(stuck = TheProgress().Stuck()).empty(); };
  Schedule::Outcome outcome = Schedule::Outcome::kDone;
  if (TheSchedule().fuzzes()) {
    outcome = TheSchedule().HostWait([this] { return Done(); }, end, is_stuck);
  } else {
    if (!Done()) {
      device.WakeWorkers();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const auto done = [this] { return stopping_ || (queue_.empty() && !busy_); };
    while (outcome == Schedule::Outcome::kDone && !done()) {
      if (idle_.wait_until(lock, std::min(Clock::now() + kDeadlockCheckInterval, end), done)) {
        break;
      }
      if (Clock::now() >= end) {
        outcome = Schedule::Outcome::kTimeout;
        break;
      }
      lock.unlock();
      const bool ends = is_stuck();
      lock.lock();
      if (ends && !done()) {
        outcome = Schedule::Outcome::kStuck;
      }
    }
  }
  if (outcome != Schedule::Outcome::kTimeout) {
    hung.store(outcome == Schedule::Outcome::kStuck);
  }
  if (outcome == Schedule::Outcome::kDone) {
    return ACL_SUCCESS;
  }
  const std::string why =
      outcome == Schedule::Outcome::kStuck ? "deadlock: " + stuck : "not done within " + std::to_string(milliseconds) + " ms";
  return Fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "synchronise stream " + std::to_string(id) + ": " + why);
}

aclError Stream::Synchronize(int32_t milliseconds) {
  const aclError error = AwaitIdle(milliseconds);
  if (const std::shared_ptr<const StreamFailure> stopped = device.stop.TellHost(); stopped != nullptr) {
    return Fail(stopped->code, "stream " + std::to_string(id) + ": the device has stopped at its first failure: " + stopped->what);
  }
  if (error != ACL_SUCCESS) {
    return error;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  clock::WakeHost(TimeOf(known_));
  TakeKnown(known_);
  if (failure_ == nullptr) {
    const std::string mistake = TakeMemoryMistake();
    return mistake.empty() ? ACL_SUCCESS : Fail(ACL_ERROR_RT_AICORE_EXCEPTION, mistake);
  }
  const std::shared_ptr<const StreamFailure> failure = std::move(failure_);
  failure_.reset();
  return Fail(failure->code, "stream " + std::to_string(id) + ": " + failure->what);
}

void Stream::Drain() {
  AwaitIdle(-1);
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.reset();
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
  std::deque<Task> taken;
  {
    const std::lock_guard<std::mutex> lock(taken_mutex_);
    taken.swap(taken_);
  }
  // Without the lock: a host that waits under a fuzzed schedule looks at the stream with the schedule's lock held.
  TheSchedule().Withdraw(lane_);
}

void Stream::AwaitTask(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return stopping_ || !queue_.empty(); };
  const bool null = configuration::KernelsAreNull();
  const std::chrono::microseconds length = null ? kNapOfNullKernels : kNap;
  for (int nap = 0; nap < (null ? kNapsOfNullKernels : kNaps) && !TheSchedule().fuzzes(); ++nap) {
    if (ready() || not_empty_.wait_for(lock, length, ready)) {
      return;
    }
  }
  sleeping_ = queue_.empty();
  not_empty_.wait(lock, ready);
  sleeping_ = false;
}

void Stream::Take() {
  const std::lock_guard<std::mutex> lock(taken_mutex_);
  if (TheSchedule().fuzzes()) {
    taken_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  } else {
    taken_.swap(queue_);
  }
}

std::optional<Task> Stream::NextTaken() {
  const std::lock_guard<std::mutex> lock(taken_mutex_);
  if (taken_.empty() || stopping_) {
    return std::nullopt;
  }
  std::optional<Task> task(std::move(taken_.front()));
  taken_.pop_front();
  return task;
}

void Stream::Work() {
  TraceAsStream(device.id, id);
  WorkForDevice(device.stop);
  const OnLane on(ordered_);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    AwaitTask(lock);
    if (stopping_) {
      return;
    }
    Take();
    busy_ = true;
    std::shared_ptr<const StreamFailure> failure = failure_;
    lock.unlock();
    // A task is freed before its end is reported.
    while (std::optional<Task> task = NextTaken()) {
      TheSchedule().Begin(lane_);
      if (failure == nullptr) {
        failure = device.stop.failure();
      }
      if (failure == nullptr) {
        failure = Run(*task);
      } else if (Signals(task->kind)) {
        const WithFailure with(failure);
        Run(*task);
      }
    }
    Known known = TellKnown();
    lock.lock();
    known_ = std::move(known);
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

std::shared_ptr<const StreamFailure> Stream::KeepFailure(const Task& task, aclError code, const std::string& what) {
  const bool replay = task.kind == TaskKind::kReplay;
  auto failure = std::make_shared<const StreamFailure>(
      StreamFailure{replay ? ACL_ERROR_RT_MODEL_EXECUTE : code, std::string(task.name) + " failed on the device: " + what});
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
  }
  device.stop.At(failure);
  TheMonitor().Update([] {});  // waits end where the device stopped
  TellOfFailure("stream " + std::to_string(id) + ": " + failure->what);
  return failure;
}

std::shared_ptr<const StreamFailure> Stream::Run(Task& task) {
  std::shared_ptr<const StreamFailure> failure;
  try {
    const Progress::Run run("stream " + std::to_string(id));
    clock::BeginTask(task);
    const Span span(task);
    TakeKnown(task.known);
    clock::BeforeRun(task);
    FailOnPurpose(task);
    task.run();
    clock::AfterRun(task);
  } catch (const Stopped&) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  } catch (const DeviceFailure& thrown) {
    failure = KeepFailure(task, thrown.code(), thrown.what());
  } catch (const std::exception& thrown) {
    failure = KeepFailure(task, ACL_ERROR_RT_AICORE_EXCEPTION, thrown.what());
  }
  if (task.kind == TaskKind::kKernel || task.kind == TaskKind::kMemoryCopy || task.kind == TaskKind::kMemorySet) {
    TheMonitor().MemoryChanged();
  }
  return failure;
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
