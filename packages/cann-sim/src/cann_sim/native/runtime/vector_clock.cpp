#include "vector_clock.h"

#include <algorithm>

namespace cann_sim {

void VectorClock::Set(size_t lane, uint64_t time) {
  times_.resize(std::max(times_.size(), lane + 1));
  times_[lane] = time;
}

void VectorClock::Join(const VectorClock& other) {
  times_.resize(std::max(times_.size(), other.times_.size()));
  for (size_t lane = 0; lane < other.times_.size(); ++lane) {
    times_[lane] = std::max(times_[lane], other.times_[lane]);
  }
}

}  // namespace cann_sim
