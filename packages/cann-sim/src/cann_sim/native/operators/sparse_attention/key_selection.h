// Which keys a query of sparse attention looks at.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace cann_sim::operators {

struct KeySelection {
  const char* name;    // of the argument, for messages
  int64_t group_size;  // keys that one number stands for
};

// The numbers (int64) of the keys before `seen` and `key_length` that `row` names. It holds numbers of groups and ends at the
// first -1; fails where it names a group that does not exist.
at::Tensor SelectedKeys(const KeySelection& selection, const at::Tensor& row, int64_t key_length, int64_t seen);

}  // namespace cann_sim::operators
