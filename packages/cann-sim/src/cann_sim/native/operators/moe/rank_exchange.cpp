#include "rank_exchange.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "../interface/refusal.h"

namespace cann_sim::operators {

namespace {

constexpr std::chrono::seconds kPatience{10};

// One exchange; gone when every rank has taken its results.
struct Round {
  std::vector<std::optional<std::vector<at::Tensor>>> given;
  int64_t taken = 0;
};

struct Meeting {
  std::mutex mutex;
  std::condition_variable came;
  std::vector<uint64_t> next;  // number of the next exchange of each rank
  std::map<uint64_t, Round> rounds;
};

Meeting& MeetingOf(const RankGroup& group) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Meeting>> meetings;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Meeting>& meeting = meetings[group.name + "/" + std::to_string(group.size)];
  if (!meeting) {
    meeting = std::make_unique<Meeting>();
    meeting->next.resize(static_cast<size_t>(group.size));
  }
  return *meeting;
}

std::string Missing(const Round& round) {
  std::string ranks;
  for (size_t rank = 0; rank < round.given.size(); ++rank) {
    if (!round.given[rank]) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return ranks;
}

}  // namespace

std::vector<std::vector<at::Tensor>> Exchange(const RankGroup& group, const std::vector<at::Tensor>& own) {
  if (group.size == 1) {
    return {own};
  }
  Meeting& meeting = MeetingOf(group);
  const auto rank = static_cast<size_t>(group.rank);
  std::unique_lock lock(meeting.mutex);
  const uint64_t number = meeting.next[rank]++;
  Round& round = meeting.rounds[number];
  round.given.resize(static_cast<size_t>(group.size));
  round.given[rank] = own;
  meeting.came.notify_all();
  const auto complete = [&] {
    for (const auto& part : round.given) {
      if (!part) {
        return false;
      }
    }
    return true;
  };
  if (!meeting.came.wait_for(lock, kPatience, complete)) {
    const std::string missing = Missing(round);
    round.given[rank].reset();
    meeting.next[rank] = number;
    throw Refusal("rank " + std::to_string(group.rank) + " of group '" + group.name + "' waited " +
                  std::to_string(kPatience.count()) + " s for ranks " + missing +
                  ", which are expected to launch the same operator on other simulated devices of this process");
  }
  std::vector<std::vector<at::Tensor>> results;
  for (const auto& part : round.given) {
    results.push_back(*part);
  }
  if (++round.taken == group.size) {
    meeting.rounds.erase(number);
  }
  return results;
}

}  // namespace cann_sim::operators
