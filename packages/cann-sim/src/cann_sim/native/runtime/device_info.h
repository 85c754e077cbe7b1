// What the simulated device has: the figures of an Ascend 910B1.
#pragma once

#include <cstdint>

namespace cann_sim {

constexpr int64_t kCubeCores = 24;
constexpr int64_t kVectorCores = 48;
constexpr int64_t kLevel2CacheBytes = 192LL << 20;

}  // namespace cann_sim
