// Latent attention over the keys that a selection names, whatever the dtype of the keys in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "../attention/ragged_rows.h"
#include "../interface/argument.h"
#include "key_selection.h"

namespace cann_sim::operators {

constexpr int64_t kLatentDim = 512;
constexpr int64_t kRopeDim = 64;

// What one sequence computes on, float32: queries [S, heads, 576], keys [K, 1, 576], values [K, 1, 512].
struct SequenceOperands {
  at::Tensor queries, keys, values;
};

// What the workspace phase made of the arguments; owned by the kernel.
struct SelectedAttention {
  Tensor selection;  // int32 [..., 1, count], for the rows of the queries
  QueriesAndKeys rows;
  SparseMask mask;
  double scale;
  int64_t group_size;  // keys per number of the selection
  Tensor output;
  // The largest score and the sum of exponentials, [1, T, heads] or [B, 1, S, heads]; where they are wanted.
  OptionalTensor largest = {}, total = {};

  // Refuses queries of another width than `query_dim` or another number of heads than a power of two, and selections, outputs and
  // statistics that do not fit them.
  void Require(const Tensor& query, int64_t query_dim) const;

  // `operands` reads the queries and keys of sequence `index` from memory.
  using ReadOperands = std::function<SequenceOperands(size_t index, const RowSpan& queries, const RowSpan& keys)>;
  void Run(const ReadOperands& operands) const;

 private:
  void RunSequence(size_t index, const RowSpan& own, const RowSpan& seen, const SequenceOperands& operands) const;
};

// Refuses sizes of groups of keys that are no power of two, or above `most`.
void RequireGroupSize(const Int& size, int64_t most);

// Refuses other values than `allowed`.
void RequireValue(const Int& attribute, std::initializer_list<int64_t> allowed);

// Refuses other forms than the absorbed one, in which the latent key is the value too.
void RequireAbsorbed(const Int& attention_mode);

}  // namespace cann_sim::operators
