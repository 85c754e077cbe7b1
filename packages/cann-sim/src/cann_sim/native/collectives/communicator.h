// A communicator: one rank's view of the ranks that exchange data with each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "interface.h"
#include "root_info.h"
#include "shared_segment.h"
#include "timeouts.h"

namespace cann_sim::collectives {

// How a rank waits for others. Those that run at the same time are often a few microseconds late, so it first lets others run
// so many times; then it sleeps, at most so long at once.
constexpr size_t kYields = 40;
constexpr uint32_t kSleepMilliseconds = 50;

class Communicator {
 public:
  // Takes the rank's place in the segment. HCCL_E_PARA where it is taken, or others expect another number of ranks.
  static HcclResult Take(const char* function, const RootInfo& root, uint32_t ranks, uint32_t rank, std::string name,
                         const Timeouts& timeouts, std::shared_ptr<Communicator>& made);
  // Waits until every rank has taken its place; HCCL_E_TIMEOUT, or HCCL_E_REMOTE where one ended before.
  HcclResult AwaitRanks(const char* function);

  const std::string name;
  const uint32_t ranks;
  const uint32_t rank;

  SharedSegment& segment() { return *segment_; }

  // Ends all waits in this process, now and later, and notifies the other ranks.
  void Leave();
  // Every rank that waits, or comes later, fails with the text.
  void Fail(const std::string& text);
  // The same from a kernel, which fails too.
  [[noreturn]] void FailAndThrow(const std::string& text);

  // Called by kernels before they begin: throws where the communicator failed, was left, or the process ends. What another
  // rank did in a collective that failed must not be taken for its part in the next one.
  void CheckUsable();

  // Which ranks keep this one waiting.
  using Missing = std::function<std::vector<uint32_t>()>;
  // Called by kernels: waits until nobody is missing. Throws DeviceFailure where a rank has ended, has left or failed, or did
  // not come in time. `what` says what this rank is at.
  void Await(const std::string& what, const Missing& missing);

  // Waits for something to change, like Await, but only once and at most so long. `since` is of the time before the caller
  // checked whether it could continue, `begun` of the time when it last did.
  using Clock = std::chrono::steady_clock;
  void Pause(const std::string& what, const Missing& missing, uint32_t since, Clock::time_point begun, uint32_t milliseconds);

  // "communicator 'name' (2 ranks), rank 0"
  std::string Describe() const;

  // Held by the one collective that runs.
  std::mutex collective;
  uint64_t round = 0;  // chunks exchanged so far; its last bit chooses the windows

  // This rank's end of a channel. The lock is held by the message that is under way.
  struct ChannelEnd {
    std::mutex mutex;
    uint64_t messages = 0;
  };
  ChannelEnd& sending_end(uint32_t receiver) { return (*sending_ends_)[receiver]; }
  ChannelEnd& receiving_end(uint32_t sender) { return (*receiving_ends_)[sender]; }

 private:
  Communicator(std::unique_ptr<SharedSegment> segment, const RootInfo& root, uint32_t ranks, uint32_t rank,
               std::string name, const Timeouts& timeouts);

  // Those that will never come, or empty.
  std::string DescribeGone(const std::vector<uint32_t>& missing);
  std::string DescribeRank(uint32_t other);

  const std::unique_ptr<SharedSegment> segment_;
  const RootInfo root_;
  const Timeouts timeouts_;
  const std::unique_ptr<std::vector<ChannelEnd>> sending_ends_;
  const std::unique_ptr<std::vector<ChannelEnd>> receiving_ends_;
  std::atomic<bool> left_{false};
};

// The one of a handle; null (with the error set) if there is none.
std::shared_ptr<Communicator> FindCommunicator(const char* function, HcclComm handle);

}  // namespace cann_sim::collectives
