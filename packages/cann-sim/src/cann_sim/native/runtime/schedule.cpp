#include "schedule.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "configuration.h"
#include "device.h"
#include "launch.h"

namespace {

thread_local cann_sim::Lane* current_lane = nullptr;

constexpr uint64_t kAllSteps = ~0ULL;
// A host that reads memory in a loop calls nothing: after this time the device continues by itself.
constexpr std::chrono::milliseconds kHostSilence{1000};

}  // namespace

namespace cann_sim {

std::string Schedule::Set(const std::string& text) {
  const std::string prefix = "fuzz:";
  uint64_t seed = 0;
  if (text != "free") {
    const char* digits = text.c_str() + prefix.size();
    char* end = nullptr;
    if (text.compare(0, prefix.size(), prefix) == 0 && *digits >= '0' && *digits <= '9') {
      seed = std::strtoull(digits, &end, 10);
    }
    if (end == nullptr || *end != '\0') {
      return "expected 'free' or 'fuzz:<seed>' with a seed of 0 or above, found '" + text + "'";
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lanes_.empty()) {
    return "expected an idle device, found tasks that have not run; synchronise the device first";
  }
  text_ = text;
  ++epoch_;
  random_ = seed;
  next_number_ = 0;
  steps_ = 0;
  host_seen_ = Clock::now();
  fuzzes_.store(text != "free");
  return "";
}

std::string Schedule::text() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return text_;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t Schedule::Random() {
  uint64_t value = (random_ += 0x9E3779B97F4A7C15ULL);
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

bool Schedule::HostGoesFirst() const {
  return std::any_of(waiters_.begin(), waiters_.end(), [](const auto& waiter) { return (*waiter.second.condition)(); });
}

std::map<uint64_t, Lane*> Schedule::Candidates() const {
  std::map<uint64_t, Lane*> candidates;
  for (const auto& [number, lane] : lanes_) {
    if (lane->state_ == Lane::State::kReady || (lane->state_ == Lane::State::kBlocked && lane->condition_())) {
      candidates[number] = lane;
    }
  }
  return candidates;
}

void Schedule::Choose() {
  if (holder_ != nullptr) {
    return;
  }
  if ((steps_ > 0 || !waiters_.empty()) && !HostGoesFirst()) {
    const std::map<uint64_t, Lane*> candidates = Candidates();
    if (candidates.empty()) {
      steps_ = 0;
    } else {
      holder_ = std::next(candidates.begin(), static_cast<std::ptrdiff_t>(Random() % candidates.size()))->second;
      holder_->state_ = Lane::State::kRunning;
      steps_ -= steps_ > 0 && steps_ != kAllSteps ? 1 : 0;
    }
  } else if (!waiters_.empty()) {
    steps_ = 0;
  }
  changed_.notify_all();
}

void Schedule::Yield(Lane& lane, Lane::State state) {
  if (holder_ == &lane) {
    holder_ = nullptr;
  }
  lane.state_ = state;
}

void Schedule::Remove(const Lane& lane) {
  const auto found = lanes_.find(lane.number_);
  if (found != lanes_.end() && found->second == &lane) {
    lanes_.erase(found);
  }
}

bool Schedule::InTurn() { return current_lane != nullptr; }

void Schedule::AwaitTurn(std::unique_lock<std::mutex>& lock, Lane& lane) {
  const auto mine = [&] { return stopped_ || lane.withdrawn_ || holder_ == &lane; };
  while (!changed_.wait_for(lock, kHostSilence, mine)) {
    if (holder_ == nullptr && Clock::now() - host_seen_ >= kHostSilence) {
      steps_ = std::max<uint64_t>(steps_, 1);
      Choose();
    }
  }
}

void Schedule::Announce(Lane& lane) {
  if (!fuzzes()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lane.epoch_ != epoch_) {
    lane.epoch_ = epoch_;
    lane.number_ = next_number_++;
  }
  ++lane.announced_;
  if (lane.state_ == Lane::State::kIdle) {
    lane.state_ = Lane::State::kReady;
    lanes_[lane.number_] = &lane;
  }
}

void Schedule::Withdraw(Lane& lane) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lane.withdrawn_ = true;
  lane.announced_ = 0;
  if (!lane.begun_) {
    Yield(lane, Lane::State::kIdle);
    Remove(lane);
    Choose();
  }
}

void Schedule::Begin(Lane& lane) {
  if (!fuzzes()) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  AwaitTurn(lock, lane);
  lane.announced_ -= lane.announced_ > 0 ? 1 : 0;
  lane.begun_ = true;
  current_lane = &lane;
}

void Schedule::End(Lane& lane) {
  if (current_lane != &lane) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  current_lane = nullptr;
  lane.begun_ = false;
  const bool more = lane.announced_ > 0;
  Yield(lane, more ? Lane::State::kReady : Lane::State::kIdle);
  if (!more) {
    Remove(lane);
  }
  Choose();
}

void Schedule::Step() {
  Lane* lane = current_lane;
  if (lane == nullptr) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  Yield(*lane, Lane::State::kReady);
  Choose();
  AwaitTurn(lock, *lane);
}

void Schedule::Block(const std::function<bool()>& condition) {
  Lane* lane = current_lane;
  if (lane == nullptr) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  lane->condition_ = condition;
  Yield(*lane, Lane::State::kBlocked);
  Choose();
  AwaitTurn(lock, *lane);
  lane->condition_ = nullptr;
}

Schedule::Outside::Outside() : lane_(current_lane) {
  if (lane_ == nullptr) {
    return;
  }
  Schedule& schedule = TheSchedule();
  const std::lock_guard<std::mutex> lock(schedule.mutex_);
  current_lane = nullptr;
  schedule.Yield(*lane_, Lane::State::kOutside);
  schedule.Choose();
}

Schedule::Outside::~Outside() {
  if (lane_ == nullptr) {
    return;
  }
  Schedule& schedule = TheSchedule();
  std::unique_lock<std::mutex> lock(schedule.mutex_);
  current_lane = lane_;
  lane_->state_ = Lane::State::kReady;
  schedule.Choose();
  schedule.AwaitTurn(lock, *lane_);
}

void Schedule::HostPoint(uint64_t least) {
  if (!fuzzes() || current_lane != nullptr) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  host_seen_ = Clock::now();
  // None, a few or all: a host far ahead, one in step with the device, one that the device overtakes.
  const uint64_t drawn = Random();
  const uint64_t few = 1 + (drawn >> 8) % 6;
  steps_ = std::max(least, drawn % 8 < 4 ? 0 : drawn % 8 < 7 ? few : kAllSteps);
  if (steps_ == 0) {
    return;
  }
  Choose();
  changed_.wait(lock, [this] { return stopped_ || (steps_ == 0 && holder_ == nullptr); });
}

Schedule::Outcome Schedule::HostWait(const std::function<bool()>& condition, Clock::time_point until,
                                     const std::function<bool()>& stuck) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t waiter = next_waiter_++;
  waiters_[waiter] = {&condition};
  Choose();
  Outcome outcome = Outcome::kDone;
  while (!stopped_ && (holder_ != nullptr || !condition())) {
    host_seen_ = Clock::now();
    changed_.wait_until(lock, std::min(until, Clock::now() + std::chrono::milliseconds(10)));
    if (!condition() && Clock::now() >= until) {
      outcome = Outcome::kTimeout;
      break;
    }
    Choose();
    if (holder_ == nullptr && !condition()) {
      lock.unlock();
      const bool ends = stuck();
      lock.lock();
      if (ends && holder_ == nullptr && !condition()) {
        outcome = Outcome::kStuck;
        break;
      }
    }
  }
  waiters_.erase(waiter);
  host_seen_ = Clock::now();
  return outcome;
}

void Schedule::Reconsider() {
  if (!fuzzes() || current_lane != nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Choose();
}

bool Schedule::CanMove() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool outside =
      std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane.second->state_ == Lane::State::kOutside; });
  return holder_ != nullptr || outside || !Candidates().empty();
}

void Schedule::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

Schedule& TheSchedule() {
  static auto* schedule = [] {
    auto* made = new Schedule;
    const std::string wrong = made->Set(configuration::ScheduleText());
    if (!wrong.empty()) {
      configuration::Refuse("CANN_SIM_SCHEDULE", wrong);
    }
    return made;
  }();
  return *schedule;
}

}  // namespace cann_sim

// Sets the schedule of the device. Writes what is wrong with it into `message`, cut at `size`, and returns its length;
// 0 where nothing is wrong.
extern "C" CANN_SIM_EXPORT size_t cann_sim_set_schedule(const char* text, char* message, size_t size) {
  std::string wrong = "expected an idle device, found tasks that have not run; synchronise the device first";
  if (cann_sim::BusyStreams() == 0) {
    wrong = cann_sim::TheSchedule().Set(text);
  }
  std::memcpy(message, wrong.data(), std::min(size, wrong.size()));
  return wrong.size();
}

// Writes the schedule of the device into `buffer`, cut at `size`, and returns its length.
extern "C" CANN_SIM_EXPORT size_t cann_sim_schedule(char* buffer, size_t size) {
  const std::string text = cann_sim::TheSchedule().text();
  std::memcpy(buffer, text.data(), std::min(size, text.size()));
  return text.size();
}
