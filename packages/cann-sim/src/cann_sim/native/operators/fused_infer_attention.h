// One call of FusedInferAttentionScore (FIA), as its workspace phase understood it.
#pragma once

#include <vector>

#include "argument.h"

namespace cann_sim::operators {

enum class QueryLayout { kBSH, kBSND, kBNSD, kTND, kNTD };
enum class OutputLayout { kBSH, kBSND, kBNSD, kNBSD, kTND, kNTD };

// The side of the square mask that stands for any causal mask in the sparse modes 2 to 4.
inline constexpr int64_t kCompressedMaskSize = 2048;

// One sequence of the batch: its query rows and its number of keys.
struct Sequence {
  int64_t query_start;   // first row; within the batch entry where the layout has a batch, within T where it has not
  int64_t query_length;
  int64_t key_start;     // first key; 0 where the layout has a batch or the keys are paged
  int64_t key_length;
};

// How int8 keys or values become floating point numbers: (x + offset) * scale, with one scale, one for each head and dimension
// [kv_heads * D], or one for each token [B, S]. The memory stays the caller's. Without a scale there is nothing to do.
struct Dequantization {
  at::Tensor scale, offset;
  bool by_token = false;
};

// What the workspace phase made of the arguments; owned by the kernel.
struct FusedInferAttention {
  Tensor query, key, value, output, log_sum_exp;
  OptionalTensor mask, block_table, sink;
  // Further dimensions of the heads of `query` and `key`, which take part in the scores only (MLA).
  OptionalTensor query_rope, key_rope;
  Dequantization key_dequantization, value_dequantization;
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
  at::Tensor OutputView() const;
  at::Tensor Queries(const Tensor& tensor, size_t index) const;
  at::Tensor Keys(const Tensor& tensor, const Dequantization& dequantization, const at::Tensor& table, size_t index) const;
  at::Tensor Paged(const Tensor& cache, const at::Tensor& table, size_t index) const;
  // The part of one sequence, from `start`, of a tensor in canonical order.
  at::Tensor Rows(const at::Tensor& tensor, size_t index, int64_t start, int64_t length) const;
  at::Tensor Hidden(size_t index) const;
};

// Head dimension of a tensor that has `heads` heads in this layout.
int64_t DimOf(const Tensor& tensor, QueryLayout layout, int64_t heads);
// Head dimension of the keys or the values of a call.
int64_t CacheDim(const FusedInferAttention& call, const Tensor& tensor);

}  // namespace cann_sim::operators
