// The order in which the workers of the device continue. Free: all at once, as the operating system likes. Fuzzed: one task at
// a time, in an order that a seed decides, so that the same program with the same seed interleaves in the same way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace cann_sim {

// One sequence of tasks of the device: a stream, or a side branch of a replay. It outlives its use by the schedule.
class Lane {
 private:
  friend class Schedule;
  enum class State : uint8_t { kIdle, kReady, kRunning, kBlocked, kOutside };

  State state_ = State::kIdle;
  uint64_t epoch_ = 0;  // of the schedule that gave it its number
  uint64_t number_ = 0;
  uint64_t announced_ = 0;  // tasks that have not begun
  bool begun_ = false;
  bool withdrawn_ = false;
  std::function<bool()> condition_;  // of a blocked lane
};

class Schedule {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome : uint8_t { kDone, kTimeout, kStuck };

  // Whether an order is decided. Where it is not, the calls below that say nothing else return at once.
  bool fuzzes() const { return fuzzes_.load(std::memory_order_relaxed); }

  // Takes "free" or "fuzz:<seed>"; the device must be idle. Returns what is wrong with it, or an empty text.
  std::string Set(const std::string& text);
  std::string text();

  // Says that the lane got a task, before anybody depends on it.
  void Announce(Lane& lane);
  // Says that the lane's tasks that have not begun will never run.
  void Withdraw(Lane& lane);

  // Called by the thread of a lane. Begin waits for the lane's turn for its next task, End gives it up.
  void Begin(Lane& lane);
  void End(Lane& lane);
  // Between two tasks of one graph branch: another lane may go first.
  void Step();
  // Waits until the condition holds and it is the turn of the lane. Returns early when the process ends.
  void Block(const std::function<bool()>& condition);

  // While it lives, the thread runs code of the host, which may wait for anything: its lane has no turn.
  class Outside {
   public:
    Outside();
    ~Outside();
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    Lane* lane_;
  };

  // Called by threads of the host. HostPoint lets the device run as many tasks as the seed decides, at least `least`.
  void HostPoint(uint64_t least);
  // Lets the device run until the condition holds, to the time given, or until `stuck` says so.
  Outcome HostWait(const std::function<bool()>& condition, Clock::time_point until, const std::function<bool()>& stuck);
  // State that a condition looks at was changed by the host.
  void Reconsider();

  // Whether the calling thread is the one of a lane that has its turn.
  static bool InTurn();
  // Whether some lane has a turn or could have one.
  bool CanMove();
  // Ends every wait, now and later.
  void Stop();

 private:
  struct HostWaiter {
    const std::function<bool()>* condition;
  };

  // The following are called with the lock held.
  void Choose();
  void Yield(Lane& lane, Lane::State state);
  void Remove(const Lane& lane);
  void AwaitTurn(std::unique_lock<std::mutex>& lock, Lane& lane);
  bool HostGoesFirst() const;
  std::map<uint64_t, Lane*> Candidates() const;
  uint64_t Random();

  std::atomic<bool> fuzzes_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_ = "free";
  uint64_t epoch_ = 0;
  uint64_t random_ = 0;
  uint64_t next_number_ = 0;
  uint64_t steps_ = 0;                  // tasks that the device may still run before the host continues
  Clock::time_point host_seen_;
  Lane* holder_ = nullptr;              // whose turn it is
  std::map<uint64_t, Lane*> lanes_;     // those that are not idle, by number
  std::map<uint64_t, HostWaiter> waiters_;
  uint64_t next_waiter_ = 0;
  bool stopped_ = false;
};

// Never destroyed: worker threads may still run while the process exits.
Schedule& TheSchedule();

}  // namespace cann_sim
