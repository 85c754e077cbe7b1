#include "order.h"

#include <map>
#include <mutex>
#include <utility>

#include "clock/virtual_time.h"
#include "configuration.h"

namespace {

using cann_sim::Known;
using cann_sim::OrderedLane;
using cann_sim::VectorClock;

thread_local OrderedLane* this_lane = nullptr;

struct Lanes {
  std::mutex mutex;
  size_t count = 0;                 // of numbers that were ever given
  std::map<size_t, uint64_t> free;  // numbers that may be given again, with the time to go on from
};

Lanes& TheLanes() {
  static auto* lanes = new Lanes;
  return *lanes;
}

// What the host knows. It is replaced, not changed, so that many launches share one.
struct Host {
  std::mutex mutex;
  Known known = std::make_shared<const VectorClock>();
};

Host& TheHost() {
  static auto* host = new Host;
  return *host;
}

Known HostKnown() {
  const std::lock_guard<std::mutex> lock(TheHost().mutex);
  return TheHost().known;
}

void TellHost(const Known& known) {
  const std::lock_guard<std::mutex> lock(TheHost().mutex);
  auto joined = std::make_shared<VectorClock>(*TheHost().known);
  joined->Join(*known);
  TheHost().known = std::move(joined);
}

}  // namespace

namespace cann_sim {

bool OrderIsChecked() { return configuration::ChecksUpdates(); }

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
    return HostKnown();
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
    TellHost(known);
  } else {
    this_lane->clock_.Join(*known);
  }
}

void MeetHost() {
  if (OrderIsTold() && this_lane != nullptr) {
    TellHost(TellKnown());
    TakeKnown(HostKnown());
  }
}

Moment Moment::Now() {
  if (this_lane == nullptr) {
    return {};
  }
  return {this_lane->number_, this_lane->clock_.Of(this_lane->number_), this_lane->name};
}

bool HappenedBefore(const Moment& moment) {
  return this_lane == nullptr || moment.time <= this_lane->clock_.Of(moment.lane);
}

}  // namespace cann_sim
