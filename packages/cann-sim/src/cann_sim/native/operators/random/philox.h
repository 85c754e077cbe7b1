// Counter-based random numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// Where a random operator starts in the stream of its generator.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// Four random words of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// key = seed, counter = (index, offset). The same state gives the same words, on every thread.
std::array<uint32_t, 4> Philox(PhiloxState state, uint64_t index);

// Each gives `count` values of the sequence that `state` begins, from value `first` on, a multiple of 4.

// float64, multiples of 2^-24 in [0, 1), so that they are exact in float32.
at::Tensor UniformValues(PhiloxState state, int64_t count, int64_t first = 0);

// float64 of the standard normal distribution (Box-Muller).
at::Tensor NormalValues(PhiloxState state, int64_t count, int64_t first = 0);

// int64, uniform over all 64 bits without the sign.
at::Tensor IntegerValues(PhiloxState state, int64_t count, int64_t first = 0);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
