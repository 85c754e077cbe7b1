// Whether the device still gets anywhere: which workers have a task, which of them wait, and when something last happened.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "task.h"
#include "trace.h"

namespace cann_sim {

class Progress;

// Never destroyed: worker threads may still run while the process exits.
Progress& TheProgress();

class Progress {
 public:
  // Describes what a wait waits for, at the time of the call.
  using What = std::function<std::string()>;
  // Whether a wait could end. Called with the monitor's lock.
  using Condition = std::function<bool()>;

  // Something happened: a task was given to a stream, or state that a wait looks at changed.
  void Note() {
    // Of the same clock as Clock, to some milliseconds, at a fraction of its cost: every task notes.
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const auto since = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    const Clock::rep time = std::chrono::duration_cast<Clock::duration>(since).count();
    // Seldom written, because it is read by the threads of all processors.
    if (last_.load(std::memory_order_relaxed) != time) {
      last_.store(time, std::memory_order_relaxed);
    }
  }

  // While it lives, the thread runs a task of the stream.
  class Run {
   public:
    explicit Run(std::string where);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
  };

  // While it lives, the position of the thread has this text after it.
  class Within {
   public:
    explicit Within(const std::string& what);
    ~Within();
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    size_t length_;
  };

  // While it lives, there is a side branch of a replay, which has a worker of its own or will have one.
  class SideBranch {
   public:
    SideBranch() { ++TheProgress().side_branches_; }
    ~SideBranch() { --TheProgress().side_branches_; }
    SideBranch(const SideBranch&) = delete;
    SideBranch& operator=(const SideBranch&) = delete;
  };

  // While it lives, the thread runs these tasks of a graph in order; Next says that it comes to the next one.
  class Branch {
   public:
    explicit Branch(const std::vector<Task>& tasks);
    ~Branch();
    Branch(const Branch&) = delete;
    Branch& operator=(const Branch&) = delete;

    void Next() { ++begun_; }

   private:
    friend class Progress;
    const std::vector<Task>& tasks_;
    const Branch* const outer_;  // which runs this one as a part
    size_t begun_ = 0;
  };

  // While it lives, the task that the thread runs waits for other work, until the condition holds.
  class Pause {
   public:
    Pause(const What& what, const Condition& condition);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    // With a virtual clock the task itself lasts as long as it waits.
    std::optional<Span> span_;
  };

  // What every worker that has a task waits for, where all of them wait and nothing happened for the deadlock time
  // (CANN_SIM_DEADLOCK_SECONDS); else empty. A worker that the operating system has not yet resumed does not wait. Not
  // called with the lock of a stream or of the monitor.
  std::string Stuck();

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    std::string where;
    const What* what;
    const Condition* condition;
  };

  // Whether each of them waits for what has not come; wakes those for which it has.
  bool AllWait();

  std::atomic<Clock::rep> last_{0};
  std::atomic<size_t> side_branches_{0};
  std::mutex mutex_;
  std::map<std::thread::id, Wait> waits_;
};

}  // namespace cann_sim
