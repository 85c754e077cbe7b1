#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "device.h"
#include "error_message.h"
#include "monitor.h"
#include "stream.h"

namespace {

// At exit the workers must not run kernels while the libraries they use are torn down. Work that is still queued is
// dropped, as it is when a process leaves the device.
void StopWorkers() {
  if (cann_sim::UnusableReason() != nullptr) {
    return;
  }
  cann_sim::TheMonitor().Stop();
  cann_sim::StopStreams();
  cann_sim::TheWorkerCount().WaitForNone(2000);
}

}  // namespace

namespace cann_sim {

void WorkerCount::Add() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++count_;
}

void WorkerCount::Remove() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --count_;
  }
  changed_.notify_all();
}

void WorkerCount::WaitForNone(int32_t milliseconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [this] { return count_ == 0; });
}

WorkerCount& TheWorkerCount() {
  static auto* count = new WorkerCount;
  return *count;
}

void StartWorker(std::function<void()> work) {
  static std::once_flag once;
  std::call_once(once, [] {
    ForbidUseAfterFork();
    std::atexit(StopWorkers);
  });
  TheWorkerCount().Add();
  std::thread([work = std::move(work)] {
    pthread_setname_np(pthread_self(), "cann-sim");
    work();
    TheWorkerCount().Remove();
  }).detach();
}

}  // namespace cann_sim
