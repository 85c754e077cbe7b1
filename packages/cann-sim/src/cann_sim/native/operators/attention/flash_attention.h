// FlashAttentionScore and its gradient: the arguments of a call, and the layout of its sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "../interface/operator.h"

namespace cann_sim::operators {

enum class FlashLayout { kBSH, kSBH, kBSND, kBNSD, kTND };

// One sequence of a batch: where its rows begin in a packed layout, and how many there are.
struct FlashSequence {
  int64_t index;
  int64_t query_start, queries;
  int64_t key_start, keys;
};

struct FlashAttention {
  Tensor query, key, value;
  OptionalTensor query_rope, key_rope, position_shift, dropped, mask, sink;
  std::vector<int64_t> query_totals, key_totals;  // of a packed layout
  double scale, keep;
  int64_t pre_tokens, next_tokens, heads, sparse_mode, pse_type;
  FlashLayout layout;
  // Whether the statistics of a packed layout are laid out like the queries, [T, N, 8]; else those of each sequence are
  // [N, S, 8], one sequence after the other.
  bool statistics_as_queries;

  void Require() const;
  void RequireStatistic(const Tensor& statistic) const;
  // Of what has the heads and rows of the queries, and value_dim columns.
  void RequireOutput(const Tensor& output) const;

  int64_t key_heads() const;
  std::vector<FlashSequence> Sequences() const;
  // [B, S, N, D], or [T, N, D] where the layout packs the sequences; a view.
  at::Tensor Canonical(const at::Tensor& tensor, int64_t own_heads) const;
  // The rows of one sequence, [S, N, D], of a canonical tensor.
  at::Tensor QueryRows(const at::Tensor& canonical, const FlashSequence& sequence) const;
  at::Tensor KeyRows(const at::Tensor& canonical, const FlashSequence& sequence) const;
  // Canonical and float32, with the rotary part after the rest.
  at::Tensor Queries() const;
  at::Tensor Keys() const;
  // [S, N, 8] of a whole statistic; a view.
  at::Tensor Statistic(const at::Tensor& whole, const FlashSequence& sequence) const;
  // As Attend takes them.
  at::Tensor Hidden(const FlashSequence& sequence) const;
  at::Tensor Shift(const FlashSequence& sequence) const;
  // softmax of the scores of one sequence by its statistics, [N, S, K] float32; nothing where a key is hidden.
  at::Tensor Weights(const FlashSequence& sequence, const at::Tensor& queries, const at::Tensor& keys,
                     const at::Tensor& largest, const at::Tensor& totals) const;
  // What dropout multiplies the weights with, [N, S, K]: 0 or 1 / keep; undefined without dropout.
  at::Tensor Kept(const FlashSequence& sequence) const;

 private:
  bool packed() const { return layout == FlashLayout::kTND; }
  int64_t batch() const;
};

FlashLayout FlashLayoutOf(const Text& name);
// Whether a text says that statistics are laid out like the queries.
bool StatisticsAsQueries(const OptionalText& layout);

}  // namespace cann_sim::operators

// Arguments that the forms of the operator and of its gradient share, in the order of their signatures.
#define CANN_SIM_FLASH_MASKS                                                                                  \
  (OptionalTensor, pse), (OptionalTensor, dropMask), (OptionalTensor, paddingMask), (OptionalTensor, attenMask)

#define CANN_SIM_FLASH_OPTIONS                                                                                \
  (Double, scale), (Double, keepProb), (Int, preTokens), (Int, nextTokens), (Int, headNum), (Text, inputLayout), \
      (Int, innerPrecise), (Int, sparseMode)

#define CANN_SIM_FLASH_TOTALS (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen)

#define CANN_SIM_FLASH_STARTS (OptionalIntArray, qStartIdx), (OptionalIntArray, kvStartIdx)

#define CANN_SIM_NONE OptionalTensor()

#define CANN_SIM_FLASH_CALL(QUERY_ROPE, KEY_ROPE, SINK, QUERY_TOTALS, KEY_TOTALS, PSE_TYPE, AS_QUERIES)            \
  FlashAttention{query,       key,        value,      QUERY_ROPE, KEY_ROPE, pse,        dropMask,                  \
                 attenMask,   SINK,       QUERY_TOTALS, KEY_TOTALS, scale,  keepProb,   preTokens,                 \
                 nextTokens,  headNum,    sparseMode, PSE_TYPE,   FlashLayoutOf(inputLayout), AS_QUERIES}
