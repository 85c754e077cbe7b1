// Whether the device still gets anywhere: which workers run a task, which of them wait, and when something last happened.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace cann_sim {

class Progress {
 public:
  // Something happened: a task was given to a stream, or state that a wait looks at changed.
  void Note() { last_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }

  // While it lives, the thread runs a task of the stream.
  class Run {
   public:
    explicit Run(std::string where);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
  };

  // While it lives, the task that the thread runs waits for other work.
  class Pause {
   public:
    explicit Pause(std::string what);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };

  // What every worker that has a task waits for, where all of them wait and nothing happened for the deadlock time
  // (CANN_SIM_DEADLOCK_SECONDS); else empty.
  std::string Stuck();

 private:
  using Clock = std::chrono::steady_clock;

  std::atomic<Clock::rep> last_{0};
  std::atomic<int> running_{0};
  std::mutex mutex_;
  std::map<std::thread::id, std::string> waits_;
};

// Never destroyed: worker threads may still run while the process exits.
Progress& TheProgress();

}  // namespace cann_sim
