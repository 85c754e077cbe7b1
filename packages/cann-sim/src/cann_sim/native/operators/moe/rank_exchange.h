// How kernels of several simulated devices of one process exchange tensors, as the ranks of a communication group do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cann_sim::operators {

struct RankGroup {
  std::string name;
  int64_t size;
  int64_t rank;
};

// Waits until every rank of the group has come to the same exchange, and returns what each of them gave, by rank. The tensors
// must not be written to afterwards. Exchanges of a rank are in the order of its calls. Fails after some seconds without the
// others, naming those that did not come.
std::vector<std::vector<at::Tensor>> Exchange(const RankGroup& group, const std::vector<at::Tensor>& own);

}  // namespace cann_sim::operators
