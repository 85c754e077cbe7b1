// A stream: one queue of tasks and one worker thread that runs them in order.
#pragma once

#include <acl/acl_base_rt.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "device_failure.h"
#include "order.h"
#include "schedule.h"
#include "task.h"

namespace cann_sim {

class Capture;
struct Device;
struct TaskGroup;

// What becomes of a task given to a stream.
enum class StreamState : uint8_t { kRunning, kCapturing, kUpdating, kDestroyed };

class Stream {
 public:
  Stream(Device& device, int32_t id, uint32_t priority)
      : device(device), id(id), priority(priority), ordered_("stream " + std::to_string(id)) {}

  Device& device;
  const int32_t id;
  const uint32_t priority;

  // Adds a task that the worker runs. The worker starts with the first task.
  void Enqueue(Task task);
  bool Idle();
  // Ends the nap of a worker that has tasks: somebody waits for them.
  void Wake();
  // Waits until all tasks given so far have run; milliseconds below 0 is no limit. Returns the failure that the device
  // stopped at, else what a failed task left behind (and forgets it), or 507046 when the limit was reached.
  aclError Synchronize(int32_t milliseconds);
  // Waits until no task is left, and forgets what a failed one left behind.
  void Drain();
  // Lets the worker end after the task that it is running.
  void Stop();
  // Frees the tasks that will never run, once the stream is stopped.
  void DropTasks();

  std::atomic<StreamState> state{StreamState::kRunning};
  // Whether a deadlock of its tasks was reported to the host, and no synchronisation has found it idle since.
  std::atomic<bool> hung{false};

  // Guarded by CaptureMutex().
  std::shared_ptr<Capture> capture;
  size_t branch = 0;  // index in the captured graph
  std::shared_ptr<TaskGroup> updating;
  size_t updated_tasks = 0;

  // Set by aclrtSubscribeReport; 0 where no thread is subscribed.
  std::atomic<uint64_t> report_thread{0};

 private:
  void Work();
  // Waits until there is a task or the worker has to stop.
  void AwaitTask(std::unique_lock<std::mutex>& lock);
  // Moves what was given to what the worker has taken, with both in the order of the stream. With the lock.
  void Take();
  // The next task that was taken, unless the worker has to stop.
  std::optional<Task> NextTaken();
  // Returns why it failed; null where it went well.
  std::shared_ptr<const StreamFailure> Run(Task& task);
  // Keeps the first failure, and reports it.
  std::shared_ptr<const StreamFailure> KeepFailure(const Task& task, aclError code, const std::string& what);
  bool Done();
  // Waits until all tasks have run; else says why it gave up.
  aclError AwaitIdle(int32_t milliseconds);

  Lane lane_;
  OrderedLane ordered_;
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::condition_variable idle_;
  std::deque<Task> queue_;
  // Apart from the queue, so that a worker and a host that are both busy seldom meet at one lock.
  std::mutex taken_mutex_;
  std::deque<Task> taken_;
  bool started_ = false;
  bool sleeping_ = false;
  bool busy_ = false;
  std::atomic<bool> stopping_{false};
  std::shared_ptr<const StreamFailure> failure_;  // null while all is well
  Known known_;  // what had happened when it last ran dry
};

// The stream of a handle, the default stream of the current device where it is null; null (with an error set)
// where there is no current device or the stream was destroyed.
Stream* FindStream(const char* function, aclrtStream handle, aclError& error);

// Workers that are alive, so that the end of the process can wait for them.
class WorkerCount {
 public:
  void Add();
  void Remove();
  // Waits until none is alive, at most `milliseconds`.
  void WaitForNone(int32_t milliseconds);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

WorkerCount& TheWorkerCount();
// Starts a thread that counts as a worker. `work` must end when the monitor stops.
void StartWorker(std::function<void()> work);

}  // namespace cann_sim

#define CANN_SIM_FIND_STREAM(variable, function, handle)                                    \
  CANN_SIM_REQUIRE_USABLE(function);                                                        \
  aclError variable##_error = ACL_SUCCESS;                                                  \
  ::cann_sim::Stream* const variable = ::cann_sim::FindStream(function, handle, variable##_error); \
  if (variable == nullptr) {                                                                \
    return variable##_error;                                                                \
  }
