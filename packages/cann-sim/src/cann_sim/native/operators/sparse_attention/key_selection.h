// Which keys a query of sparse attention looks at: those that its place lets it see, and of these the selected ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "../attention/ragged_rows.h"

namespace cann_sim::operators {

struct KeySelection {
  const char* name;    // of the argument, for messages
  int64_t group_size;  // keys per number
};

// The numbers (int64) of the keys before `seen` and `key_length` that `row` names. It holds numbers of groups and ends at the
// first -1; fails where it names a group that does not exist.
at::Tensor SelectedKeys(const KeySelection& selection, const at::Tensor& row, int64_t key_length, int64_t seen);

// What the place of a query lets it see: all keys (mode 0), or those up to its own place where the last query is at the last
// key (mode 3, right down causal).
class SparseMask {
 public:
  // Refuses other modes, and windows, which are given as numbers of tokens before and after a query.
  SparseMask(const Int& sparse_mode, const Int& pre_tokens, const Int& next_tokens);

  // How many of the first keys the query at `position` of its sequence sees; 0 or less where it sees none.
  int64_t Seen(int64_t position, const RowSpan& queries, const RowSpan& keys) const {
    return causal_ ? keys.length - queries.length + position + 1 : keys.length;
  }

 private:
  bool causal_;
};

}  // namespace cann_sim::operators
