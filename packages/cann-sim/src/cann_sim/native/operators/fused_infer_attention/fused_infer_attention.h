// One call of FusedInferAttentionScore (FIA), as its workspace phase understood it.
#pragma once

#include <vector>

#include "../interface/argument.h"

namespace cann_sim::operators {

enum class QueryLayout { kBSH, kBSND, kBNSD, kTND, kNTD };
enum class OutputLayout { kBSH, kBSND, kBNSD, kNBSD, kTND, kNTD };

// The side of the square mask that represents any causal mask in the sparse modes 2 to 4.
inline constexpr int64_t kCompressedMaskSize = 2048;

// One sequence of the batch: its query rows and its number of keys.
struct Sequence {
  int64_t query_start;   // first row; within the batch entry where the layout has a batch, within T where it has not
  int64_t query_length;
  int64_t key_start;     // first key; 0 where the layout has a batch or the keys are paged
  int64_t key_length;
};

// How int8 keys or values become floating point numbers: (x + offset) * scale. The memory stays the caller's; without a scale there
// is nothing to do.
struct Dequantization {
  // What the scales are of; the values are those of the operator's antiquant modes.
  enum Mode : int64_t {
    kChannels = 0,         // one, or one for each head and dimension [heads * D]
    kTokens = 1,           // [B, S]
    kHeads = 2,            // [heads]
    kTokensOfHeads = 3,    // [B, heads, S]
    kPagedTokens = 4,      // [blocks, block size]
    kPagedTokensOfHeads = 5,  // [blocks, heads, block size]
  };
  at::Tensor scale, offset;
  Mode mode = kChannels;
};

// What the workspace phase made of the arguments; owned by the kernel.
struct FusedInferAttention {
  Tensor query, key, value, output, log_sum_exp;
  OptionalTensor mask, block_table, sink;
  // Further dimensions of the heads of `query` and `key`, which take part in the scores only (MLA).
  OptionalTensor query_rope, key_rope;
  // Keys and values of one batch entry each, where they are in lists; else empty.
  std::vector<Tensor> key_list, value_list;
  // Added to the scaled scores, [1 or B, heads, at least the queries, at least the keys].
  OptionalTensor position_shift;
  // Keys and values that precede those of every batch entry, and how many.
  OptionalTensor key_prefix, value_prefix;
  int64_t prefix_length = 0;
  // How many rows after the last valid one, where the rows are aligned to the right; read when the kernel runs.
  OptionalTensor query_padding, key_padding;
  // The output is round(attention * scale + offset) in int8 where there is a scale.
  OptionalTensor output_scale, output_offset;
  Dequantization key_dequantization, value_dequantization;
  // A scale for each position and head of int8 queries, which the rotary parts share; the shape of the queries without D.
  OptionalTensor query_scale;
  QueryLayout query_layout;
  OutputLayout output_layout;
  int64_t heads, kv_heads, block_size, sparse_mode, pre_tokens, next_tokens;
  double scale;
  bool wants_log_sum_exp;
  std::vector<Sequence> sequences;

  bool packed() const { return query_layout == QueryLayout::kTND || query_layout == QueryLayout::kNTD; }
  int64_t query_span() const;
  // With one query position a batch layout runs the decode kernel, which knows no sparse modes.
  bool decodes() const { return !packed() && query_span() == 1 && !query_rope; }
  void Run() const;

 private:
  at::Tensor OutputView(const at::Tensor& tensor) const;
  at::Tensor Queries(const Tensor& tensor, const Sequence& sequence, size_t index) const;
  at::Tensor QueryScales(const Sequence& sequence, size_t index) const;
  // One of the two caches of a sequence.
  struct Cache {
    const Tensor& tensor;
    const std::vector<Tensor>& list;
    const Dequantization& dequantization;
    const OptionalTensor& prefix;
  };
  at::Tensor Keys(const Cache& cache, const at::Tensor& table, size_t index) const;
  at::Tensor Paged(const Tensor& cache, const at::Tensor& table, size_t index) const;
  at::Tensor Dequantized(const at::Tensor& keys, const Dequantization& how, const at::Tensor& table, size_t index) const;
  at::Tensor Shift(size_t index) const;
  void StoreOutput(const at::Tensor& attention) const;
  // Moves the rows of the sequences to where padding on the left puts them.
  std::vector<Sequence> Aligned() const;
  // The part of one sequence, from `start`, of a tensor in canonical order.
  at::Tensor Rows(const at::Tensor& tensor, size_t index, int64_t start, int64_t length) const;
  at::Tensor Hidden(size_t index) const;
};

// Head dimension of a tensor that has `heads` heads in this layout.
int64_t DimOf(const Tensor& tensor, QueryLayout layout, int64_t heads);
// Head dimension of the keys or the values of a call.
int64_t CacheDim(const FusedInferAttention& call, const Tensor& tensor);

}  // namespace cann_sim::operators
