#include "order.h"

#include <map>
#include <mutex>
#include <utility>

#include "clock/virtual_time.h"
#include "configuration.h"
#include "launch.h"

namespace {

using cann_sim::Known;
using cann_sim::OrderedLane;
using cann_sim::VectorClock;

thread_local OrderedLane* this_lane = nullptr;

struct Lanes {
  std::mutex mutex;
  size_t count = 0;                 // of numbers that were ever given
  std::map<size_t, uint64_t> free;  // numbers that may be reused, with the time to continue from
};

Lanes& TheLanes() {
  static auto* lanes = new Lanes;
  return *lanes;
}

// What is known outside of the device. It is replaced, not changed, so that many launches share one.
class Outside {
 public:
  Known known() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return known_;
  }
  void Tell(const Known& known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto joined = std::make_shared<VectorClock>(*known_);
    joined->Join(*known);
    known_ = std::move(joined);
  }
  // The time of a lane advances by one. Returns it.
  uint64_t Advance(size_t lane) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto later = std::make_shared<VectorClock>(*known_);
    const uint64_t time = later->Of(lane) + 1;
    later->Set(lane, time);
    known_ = std::move(later);
    return time;
  }

 private:
  std::mutex mutex_;
  Known known_ = std::make_shared<const VectorClock>();
};

Outside& TheHost() {
  static auto* host = new Outside;
  return *host;
}

Outside& TheOtherProcesses() {
  static auto* processes = new Outside;
  return *processes;
}

// What the lane of this thread, or the host, and those outside know, both know from now on.
void Meet(Outside& outside) {
  if (cann_sim::OrderIsTold()) {
    outside.Tell(cann_sim::TellKnown());
    cann_sim::TakeKnown(outside.known());
  }
}

}  // namespace

namespace cann_sim {

bool OrderIsChecked() { return configuration::ChecksUpdates() || configuration::ChecksMemory(); }

bool OrderIsTold() { return OrderIsChecked() || clock::kIsOn; }

OrderedLane::OrderedLane(std::string name) : name(std::move(name)) {
  if (!OrderIsChecked()) {
    return;
  }
  Lanes& lanes = TheLanes();
  const std::lock_guard<std::mutex> lock(lanes.mutex);
  uint64_t time = 1;
  if (lanes.free.empty()) {
    number_ = lanes.count++;
  } else {
    number_ = lanes.free.begin()->first;
    time = lanes.free.begin()->second;
    lanes.free.erase(lanes.free.begin());
  }
  clock_.Set(number_, time);
}

OrderedLane::~OrderedLane() {
  if (OrderIsChecked()) {
    const std::lock_guard<std::mutex> lock(TheLanes().mutex);
    TheLanes().free[number_] = clock_.Of(number_) + 1;
  }
}

OrderedLane* OrderedLane::Current() { return this_lane; }

std::string OrderedLane::Here() { return this_lane == nullptr ? "the host" : this_lane->name; }

OnLane::OnLane(OrderedLane& lane) : before_(std::exchange(this_lane, &lane)) {}

OnLane::~OnLane() { this_lane = before_; }

Known TellKnown() {
  if (!OrderIsTold()) {
    return nullptr;
  }
  if (this_lane == nullptr) {
    return TheHost().known();
  }
  auto known = std::make_shared<VectorClock>(this_lane->clock_);
  known->virtual_time = this_lane->virtual_time;
  this_lane->clock_.Set(this_lane->number_, known->Of(this_lane->number_) + 1);
  return known;
}

int64_t TimeOf(const Known& known) { return known == nullptr ? 0 : known->virtual_time; }

void TakeKnown(const Known& known) {
  if (known == nullptr) {
    return;
  }
  clock::WaitUntil(known->virtual_time);
  if (this_lane == nullptr) {
    TheHost().Tell(known);
  } else {
    this_lane->clock_.Join(*known);
  }
}

void MeetHost() {
  if (this_lane != nullptr) {
    Meet(TheHost());
  }
}

void MeetOtherProcesses() { Meet(TheOtherProcesses()); }

Moment Moment::Now() {
  if (this_lane == nullptr) {
    return {};
  }
  return {this_lane->number_, this_lane->clock_.Of(this_lane->number_), this_lane->name};
}

Moment Moment::OfHost() {
  static const auto* lane = [] {
    const auto* made = new OrderedLane("the host");
    TheHost().Tell(std::make_shared<const VectorClock>(made->clock_));  // its number may have been another's
    return made;
  }();
  return {lane->number_, TheHost().Advance(lane->number_), lane->name};
}

bool HappenedBefore(const Moment& moment) {
  return moment.time <= (this_lane == nullptr ? TheHost().known()->Of(moment.lane) : this_lane->clock_.Of(moment.lane));
}

}  // namespace cann_sim
