// What has to happen before what, by records, waits, launches and synchronisations, not by the order that a run happened to
// take. So a task update and a replay that nothing orders are found in every run, not only in an unlucky one.
//
// All threads of the host count as one: what one of them waited for, launches of another come after. Their own order among
// each other, by locks or queues, is not seen, and a mistake in it is not found. All other processes count as one too: what a
// stream did before it recorded an event between processes, or before a collective ended, comes before what a stream does after
// such a wait or collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "vector_clock.h"

namespace cann_sim {

// Where updates or memory are checked, which they never are with CANN_SIM_KERNELS=null. Otherwise the calls below do nothing.
bool OrderIsChecked();
// Whether lanes notify each other of anything: what had happened, or their virtual time.
bool OrderIsTold();

// What had happened at the notification, and its time; null without one.
using Known = std::shared_ptr<const VectorClock>;

// A lane of the device in the order of things. Its number goes to another lane when it is destroyed.
class OrderedLane {
 public:
  explicit OrderedLane(std::string name);
  ~OrderedLane();
  OrderedLane(const OrderedLane&) = delete;
  OrderedLane& operator=(const OrderedLane&) = delete;

  // The name of this thread's lane; "the host" where it is none.
  static std::string Here();

  // This thread's; null where it is none.
  static OrderedLane* Current();

  const std::string name;  // "stream 3"

  // For the virtual clock (clock/virtual_time.h), in nanoseconds; the thread of the lane's alone.
  int64_t virtual_time = 0;
  int64_t latest_awaited = 0;

 private:
  friend struct Moment;
  friend Known TellKnown();
  friend void TakeKnown(const Known& known);
  friend bool HappenedBefore(const struct Moment& moment);

  size_t number_ = 0;
  VectorClock clock_;  // the thread of the lane's alone
};

// While it lives, what the thread does is done by the lane.
class OnLane {
 public:
  explicit OnLane(OrderedLane& lane);
  ~OnLane();
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;

 private:
  OrderedLane* before_;
};

// What has happened before, for the lane of this thread, or for the host.
Known TellKnown();
// The time of the notification, by the virtual clock.
int64_t TimeOf(const Known& known);
// It has happened before everything that this lane, or the host, does from now on.
void TakeKnown(const Known& known);
// Code of the host is about to run on the thread of a lane, or has run: the host and the lane know what either knew.
void MeetHost();

// A moment of a lane.
struct Moment {
  // That of the lane of this thread, now.
  static Moment Now();
  // The next of the host.
  static Moment OfHost();

  size_t lane = 0;
  uint64_t time = 0;  // 0 is before everything
  std::string where;  // the name of the lane
};

// Whether the moment comes before what this thread does now, in every order that a device may take.
bool HappenedBefore(const Moment& moment);

}  // namespace cann_sim
