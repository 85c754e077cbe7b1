#include "communicator.h"

#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "../runtime/device_failure.h"
#include "../runtime/outside_work.h"

namespace {

using cann_sim::collectives::Process;
using cann_sim::collectives::RankSlot;
using cann_sim::collectives::RankState;

// Reading whether a process lives costs some microseconds.
constexpr std::chrono::milliseconds kLifeCheckInterval{200};

RankState StateOf(const RankSlot& slot) { return static_cast<RankState>(slot.state.load()); }

Process ProcessOf(const RankSlot& slot) { return {slot.process.load(), slot.process_start.load()}; }

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

std::string Seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.resize(text.find('.') + 2);
  return text + " s";
}

}  // namespace

namespace cann_sim::collectives {

Communicator::Communicator(std::unique_ptr<SharedSegment> segment, const RootInfo& root, uint32_t ranks, uint32_t rank,
                           std::string name, const Timeouts& timeouts)
    : name(std::move(name)),
      ranks(ranks),
      rank(rank),
      segment_(std::move(segment)),
      root_(root),
      timeouts_(timeouts),
      sending_ends_(std::make_unique<std::vector<ChannelEnd>>(ranks)),
      receiving_ends_(std::make_unique<std::vector<ChannelEnd>>(ranks)) {}

std::string Communicator::Describe() const {
  return "communicator '" + name + "' (" + std::to_string(ranks) + " ranks), rank " + std::to_string(rank);
}

HcclResult Communicator::Take(const char* function, const RootInfo& root, uint32_t ranks, uint32_t rank, std::string name,
                              const Timeouts& timeouts, std::shared_ptr<Communicator>& made) {
  std::unique_ptr<SharedSegment> segment;
  HCCL_RETURN_IF_REFUSED(MapSegment(function, root, ranks, segment));
  uint32_t expected = 0;
  if (!segment->header().ranks.compare_exchange_strong(expected, ranks) && expected != ranks) {
    return Refuse(HCCL_E_PARA, std::string(function) + ": rank " + std::to_string(rank) + " of communicator '" + name +
                                   "' expects " + std::to_string(ranks) + " ranks, others expect " +
                                   std::to_string(expected));
  }
  RankSlot& slot = segment->slot(rank);
  const Process process = ThisProcess();
  int32_t free = 0;
  if (!slot.process.compare_exchange_strong(free, process.number)) {
    return Refuse(HCCL_E_PARA, std::string(function) + ": rank " + std::to_string(rank) + " of communicator '" + name +
                                   "' is taken by process " + std::to_string(free));
  }
  slot.process_start.store(process.start);
  slot.state.store(static_cast<uint32_t>(RankState::kJoined));
  segment->Notify();
  made.reset(new Communicator(std::move(segment), root, ranks, rank, std::move(name), timeouts));
  return HCCL_SUCCESS;
}

HcclResult Communicator::AwaitRanks(const char* function) {
  const Clock::time_point begun = Clock::now();
  for (;;) {
    const uint32_t since = segment_->changed();
    std::vector<std::string> absent;
    bool gone = false;
    for (uint32_t other = 0; other < ranks; ++other) {
      const RankSlot& slot = segment_->slot(other);
      if (StateOf(slot) == RankState::kAbsent) {
        absent.push_back(std::to_string(other));
      } else {
        gone = gone || !IsAlive(ProcessOf(slot));
      }
    }
    if (absent.empty()) {
      ReleaseRoot(root_.identity);
      return HCCL_SUCCESS;
    }
    std::string failure = segment_->Failure();
    const std::string missing = "rank " + Join(absent) + " did not come to " + function;
    if (failure.empty() && gone) {
      failure = missing + ", and a rank that had come has ended";
    }
    if (!failure.empty()) {
      Fail(failure);
      return Refuse(HCCL_E_REMOTE, std::string(function) + ": " + Describe() + ": " + failure);
    }
    if (Clock::now() - begun > std::chrono::duration<double>(timeouts_.connect_seconds)) {
      Fail(missing);
      return Refuse(HCCL_E_TIMEOUT, std::string(function) + ": " + Describe() + ": " + missing + " within " +
                                        Seconds(timeouts_.connect_seconds) + " (HCCL_CONNECT_TIMEOUT)");
    }
    segment_->Sleep(since, kSleepMilliseconds);
  }
}

void Communicator::Leave() {
  left_.store(true);
  segment_->slot(rank).state.store(static_cast<uint32_t>(RankState::kLeft));
  segment_->Notify();
}

void Communicator::Fail(const std::string& text) { segment_->SetFailure("rank " + std::to_string(rank) + ": " + text); }

void Communicator::FailAndThrow(const std::string& text) {
  Fail(text);
  throw DeviceFailure(ACL_ERROR_RT_FFTS_PLUS_TIMEOUT, "EI0002: " + Describe() + ": " + text);
}

void Communicator::CheckUsable() {
  OutsideWork::CheckProcess();
  if (left_.load()) {
    throw DeviceFailure(ACL_ERROR_RT_FFTS_PLUS_TIMEOUT, Describe() + ": this rank has destroyed the communicator");
  }
  if (const std::string failure = segment_->Failure(); !failure.empty()) {
    throw DeviceFailure(ACL_ERROR_RT_FFTS_PLUS_TIMEOUT, "EI0002: " + Describe() + ": the communicator failed: " + failure);
  }
}

std::string Communicator::DescribeRank(uint32_t other) {
  const RankSlot& slot = segment_->slot(other);
  const uint64_t operations = slot.operations.load();
  std::string text = "rank " + std::to_string(other) + " (process " + std::to_string(slot.process.load()) + ") has begun " +
                     std::to_string(operations) + " collectives";
  if (operations > 0) {
    const Description& latest = slot.descriptions[operations % 2];
    text += std::string(", the latest ") + latest.operation + " of " + latest.details;
  }
  return text;
}

std::string Communicator::DescribeGone(const std::vector<uint32_t>& missing) {
  std::vector<std::string> gone;
  for (const uint32_t other : missing) {
    const RankSlot& slot = segment_->slot(other);
    if (StateOf(slot) == RankState::kLeft) {
      gone.push_back("rank " + std::to_string(other) + " has destroyed the communicator");
    } else if (!IsAlive(ProcessOf(slot))) {
      gone.push_back("rank " + std::to_string(other) + " (process " + std::to_string(slot.process.load()) + ") has ended");
    }
  }
  return Join(gone);
}

void Communicator::Pause(const std::string& what, const Missing& missing, uint32_t since, Clock::time_point begun,
                         uint32_t milliseconds) {
  CheckUsable();
  const auto waited = Clock::now() - begun;
  const bool late = timeouts_.exec_seconds > 0 && waited > std::chrono::duration<double>(timeouts_.exec_seconds);
  if (late || waited > kLifeCheckInterval) {
    // What a rank did before it ended counts: so first who is gone, then who is missing.
    std::vector<uint32_t> all(ranks);
    for (uint32_t other = 0; other < ranks; ++other) {
      all[other] = other;
    }
    const bool somebody = !DescribeGone(all).empty();
    const std::vector<uint32_t> left_out = missing();
    if (left_out.empty()) {
      return;
    }
    const std::string gone = somebody ? DescribeGone(left_out) : "";
    if (!gone.empty()) {
      FailAndThrow(what + " waits for ranks that never come: " + gone);
    }
    if (late) {
      std::vector<std::string> waited_for;
      for (const uint32_t other : left_out) {
        waited_for.push_back(DescribeRank(other));
      }
      FailAndThrow(what + " waited " + Seconds(timeouts_.exec_seconds) + " (HCCL_EXEC_TIMEOUT) for ranks that did not come: " +
                   Join(waited_for));
    }
  }
  segment_->Sleep(since, milliseconds);
}

void Communicator::Await(const std::string& what, const Missing& missing) {
  const Clock::time_point begun = Clock::now();
  for (size_t turn = 0;; ++turn) {
    const uint32_t since = segment_->changed();
    if (missing().empty()) {
      return;
    }
    if (turn < kYields) {
      sched_yield();
    } else {
      Pause(what, missing, since, begun, kSleepMilliseconds);
    }
  }
}

}  // namespace cann_sim::collectives
