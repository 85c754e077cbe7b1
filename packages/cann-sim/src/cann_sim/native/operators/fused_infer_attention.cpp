#include "fused_infer_attention.h"

#include <ATen/ops/cat.h>

#include "attention.h"
#include "paged_cache.h"

namespace cann_sim::operators {

namespace {

// [B, S, N, D] or [T, N, D], whichever layout holds the tensor.
at::Tensor Canonical(const at::Tensor& tensor, QueryLayout layout, int64_t heads) {
  switch (layout) {
    case QueryLayout::kBSH: return tensor.view({tensor.size(0), tensor.size(1), heads, -1});
    case QueryLayout::kBNSD: return tensor.transpose(1, 2);
    case QueryLayout::kNTD: return tensor.transpose(0, 1);
    default: return tensor;
  }
}

// `parameters` as they broadcast with the keys of one sequence, [length, heads, D].
at::Tensor ForKeys(const at::Tensor& parameters, const at::Tensor& keys, bool by_token, size_t index) {
  const at::Tensor wide = parameters.to(at::kFloat);
  if (by_token) {
    return wide.select(0, static_cast<int64_t>(index)).narrow(0, 0, keys.size(0)).view({-1, 1, 1});
  }
  return wide.numel() == 1 ? wide.view({1, 1, 1}) : wide.view({1, keys.size(1), keys.size(2)});
}

at::Tensor Dequantized(const at::Tensor& keys, const Dequantization& how, size_t index) {
  if (!how.scale.defined()) {
    return keys;
  }
  const at::Tensor shifted = how.offset.defined() ? keys.add(ForKeys(how.offset, keys, how.by_token, index)) : keys;
  return shifted.mul(ForKeys(how.scale, keys, how.by_token, index));
}

}  // namespace

int64_t DimOf(const Tensor& tensor, QueryLayout layout, int64_t heads) {
  return layout == QueryLayout::kBSH ? tensor.size(2) / heads : tensor.size(-1);
}

int64_t CacheDim(const FusedInferAttention& call, const Tensor& tensor) {
  if (call.block_table) {
    return tensor.rank() == 3   ? tensor.size(2) / call.kv_heads
           : tensor.rank() == 5 ? tensor.size(2) * tensor.size(4)
                                : tensor.size(3);
  }
  return DimOf(tensor, call.query_layout, call.kv_heads);
}

at::Tensor FusedInferAttention::Rows(const at::Tensor& tensor, size_t index, int64_t start, int64_t length) const {
  return (packed() ? tensor : tensor.select(0, static_cast<int64_t>(index))).narrow(0, start, length);
}

// Queries of one sequence, [query_length, heads, D].
at::Tensor FusedInferAttention::Queries(const Tensor& tensor, size_t index) const {
  const Sequence& sequence = sequences[index];
  return Rows(Canonical(tensor, query_layout, heads), index, sequence.query_start, sequence.query_length).to(at::kFloat);
}

// Keys or values of one sequence, [key_length, kv_heads, D].
at::Tensor FusedInferAttention::Keys(const Tensor& tensor, const Dequantization& dequantization, const at::Tensor& table,
                                     size_t index) const {
  const Sequence& sequence = sequences[index];
  const at::Tensor keys = block_table ? Paged(tensor, table, index)
                                      : Rows(Canonical(tensor, query_layout, kv_heads), index, sequence.key_start,
                                             sequence.key_length);
  return Dequantized(keys.to(at::kFloat), dequantization, index);
}

at::Tensor FusedInferAttention::OutputView() const {
  const at::Tensor tensor = output;
  switch (output_layout) {
    case OutputLayout::kBSH: return tensor.view({tensor.size(0), tensor.size(1), heads, -1});
    case OutputLayout::kBNSD: return tensor.transpose(1, 2);
    case OutputLayout::kNBSD: return tensor.permute({1, 2, 0, 3});
    case OutputLayout::kNTD: return tensor.transpose(0, 1);
    default: return tensor;
  }
}

int64_t FusedInferAttention::query_span() const {
  switch (query_layout) {
    case QueryLayout::kBNSD: return query.size(2);
    case QueryLayout::kTND: return query.size(0);
    default: return query.size(1);
  }
}

// Keys of one sequence, [key_length, kv_heads, D], gathered from the blocks that its row of the table names.
at::Tensor FusedInferAttention::Paged(const Tensor& cache, const at::Tensor& table, size_t index) const {
  const int64_t length = sequences[index].key_length;
  const at::Tensor row = table.select(0, static_cast<int64_t>(index));
  at::Tensor blocks = cache;
  if (cache.rank() == 4) {  // [blocks, kv_heads, block_size, D]
    blocks = blocks.transpose(1, 2);
  }
  if (cache.rank() == 5) {  // [blocks, kv_heads, D / unit, block_size, unit]
    blocks = blocks.permute({0, 3, 1, 2, 4});
  }
  return PagedRows(blocks, row, length, "blockTable", index).reshape({length, kv_heads, CacheDim(*this, cache)});
}

at::Tensor FusedInferAttention::Hidden(size_t index) const {
  const Sequence& sequence = sequences[index];
  const int64_t shift = sequence.key_length - sequence.query_length;
  const bool compressed = sparse_mode >= 2;
  at::Tensor hidden;
  if (compressed) {
    if (decodes()) {
      return hidden;
    }
    Visibility visibility{sparse_mode == 2 ? 0 : shift, int64_t{0}, std::nullopt};
    if (sparse_mode == 4) {
      visibility.ahead = next_tokens;
      visibility.behind = pre_tokens;
    }
    // The mask is meant to be 1 above the diagonal; one that is 0 there hides nothing ahead.
    if (!at::Tensor(*mask).view({kCompressedMaskSize, kCompressedMaskSize})[0][1].item().toBool()) {
      visibility.ahead = std::nullopt;
    }
    return HiddenKeys(visibility, sequence.query_length, sequence.key_length);
  }
  if (!mask) {
    return hidden;
  }
  at::Tensor full = at::Tensor(*mask).to(at::kBool);
  if (full.dim() == 2 && decodes()) {  // [B, KV_S]
    full = full.select(0, static_cast<int64_t>(index)).unsqueeze(0);
  } else {
    if (full.dim() > 2) {
      full = full.select(0, full.size(0) == 1 ? 0 : static_cast<int64_t>(index));
    }
    if (full.dim() > 2) {
      full = full.select(0, 0);
    }
    full = full.narrow(0, 0, sequence.query_length);
  }
  hidden = full.narrow(1, 0, sequence.key_length);
  if (sparse_mode == 0 && !decodes()) {
    const at::Tensor band =
        HiddenKeys({0, next_tokens, pre_tokens}, sequence.query_length, sequence.key_length);
    hidden = band.defined() ? hidden.logical_or(band) : hidden;
  }
  return hidden;
}

void FusedInferAttention::Run() const {
  const at::Tensor outputs = OutputView();
  const at::Tensor table = block_table;
  const at::Tensor sinks = sink ? at::Tensor(*sink).to(at::kFloat) : at::Tensor();
  outputs.zero_();
  // [B, N, S, 1] or [T, N, 1], turned so that the rows of a sequence come first.
  at::Tensor logarithms;
  if (wants_log_sum_exp) {
    const at::Tensor flat = at::Tensor(log_sum_exp).squeeze(-1);
    logarithms = packed() ? flat : flat.transpose(1, 2);
  }
  for (size_t index = 0; index < sequences.size(); ++index) {
    const Sequence& sequence = sequences[index];
    at::Tensor own_queries = Queries(query, index);
    at::Tensor own_keys = Keys(key, key_dequantization, table, index);
    if (query_rope) {
      own_queries = at::cat({own_queries, Queries(*query_rope, index)}, -1);
      own_keys = at::cat({own_keys, Keys(*key_rope, {}, table, index)}, -1);
    }
    const AttentionResult result =
        Attend(own_queries, own_keys, Keys(value, value_dequantization, table, index), scale, Hidden(index), sinks);
    Rows(outputs, index, sequence.query_start, sequence.query_length).copy_(result.output);
    if (wants_log_sum_exp) {
      Rows(logarithms, index, sequence.query_start, sequence.query_length).copy_(result.log_sum_exp);
    }
  }
}

}  // namespace cann_sim::operators
