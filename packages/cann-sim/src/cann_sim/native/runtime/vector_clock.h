// What is known to have happened: for each lane of the device the time up to which it has. A lane is a stream, or a side
// branch of a graph; its time advances by one whenever it publishes its position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cann_sim {

class VectorClock {
 public:
  uint64_t Of(size_t lane) const { return lane < times_.size() ? times_[lane] : 0; }
  void Set(size_t lane, uint64_t time);
  // Knows from now on what either knew.
  void Join(const VectorClock& other);

  // The time of the notification, in nanoseconds of the virtual clock; of the host 0. Not joined.
  int64_t virtual_time = 0;

 private:
  std::vector<uint64_t> times_;  // by the number of the lane
};

}  // namespace cann_sim
