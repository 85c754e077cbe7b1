// Where a random operator takes its state from, when its kernel runs: numbers of the call or, in a captured graph, tensors.
#pragma once

#include <functional>

#include "../interface/argument.h"
#include "philox.h"

namespace cann_sim::operators {

using StateSource = std::function<PhiloxState()>;

StateSource FromNumbers(int64_t seed, int64_t offset);

// `seed` and `offset` must be int64 of one value; they are read at each run. `offset_in_graph` is added to `offset`.
StateSource FromTensors(const Tensor& seed, const Tensor& offset, int64_t offset_in_graph);

}  // namespace cann_sim::operators
