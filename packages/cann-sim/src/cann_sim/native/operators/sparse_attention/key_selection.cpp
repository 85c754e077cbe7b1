#include "key_selection.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "../interface/validation.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kAllKeys = 0;
constexpr int64_t kRightDownCausal = 3;
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max();

}  // namespace

SparseMask::SparseMask(const Int& sparse_mode, const Int& pre_tokens, const Int& next_tokens)
    : causal_(sparse_mode == kRightDownCausal) {
  if (!causal_ && sparse_mode != kAllKeys) {
    RefuseArgument(sparse_mode.name(), "0 (all) or 3 (right down causal)", std::to_string(sparse_mode));
  }
  for (const Int* tokens : {&pre_tokens, &next_tokens}) {
    if (*tokens != kFarthest) {
      RefuseArgument(tokens->name(), std::to_string(kFarthest), std::to_string(*tokens));
    }
  }
}

at::Tensor SelectedKeys(const KeySelection& selection, const at::Tensor& row, int64_t key_length, int64_t seen) {
  std::vector<int64_t> keys;
  const at::Tensor wide = row.to(at::kLong).contiguous();
  const int64_t* numbers = wide.data_ptr<int64_t>();
  const int64_t groups = (key_length + selection.group_size - 1) / selection.group_size;
  for (int64_t position = 0; position < wide.numel() && numbers[position] != -1; ++position) {
    if (numbers[position] < 0 || numbers[position] >= groups) {
      RefuseArgument(selection.name, "numbers in [0, " + std::to_string(groups) + "), or -1 at the end",
                     std::to_string(numbers[position]));
    }
    const int64_t first = numbers[position] * selection.group_size;
    for (int64_t number = first; number < std::min({first + selection.group_size, key_length, seen}); ++number) {
      keys.push_back(number);
    }
  }
  return at::tensor(keys, at::kLong);
}

}  // namespace cann_sim::operators
