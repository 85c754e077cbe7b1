#include "fused_infer_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "../attention/attention.h"
#include "../cache/paged_cache.h"
#include "../interface/refusal.h"
#include "../quantization/quantization.h"

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

// Queries of one sequence, [query_length, heads, D]; the operator makes a view of other strides contiguous.
at::Tensor FusedInferAttention::Queries(const Tensor& tensor, const Sequence& sequence, size_t index) const {
  const at::Tensor whole = at::Tensor(tensor).contiguous();
  return Rows(Canonical(whole, query_layout, heads), index, sequence.query_start, sequence.query_length).to(at::kFloat);
}

// What int8 queries of one sequence are to be multiplied with, [query_length, heads, 1].
at::Tensor FusedInferAttention::QueryScales(const Sequence& sequence, size_t index) const {
  return Rows(*query_scale, index, sequence.query_start, sequence.query_length).unsqueeze(-1);
}

// Keys or values of one sequence, [prefix_length + key_length, kv_heads, D].
at::Tensor FusedInferAttention::Keys(const Cache& cache, const at::Tensor& table, size_t index) const {
  const Sequence& sequence = sequences[index];
  at::Tensor keys;
  if (block_table) {
    keys = Paged(cache.tensor, table, index);
  } else if (!cache.list.empty()) {
    keys = Canonical(cache.list[index], query_layout, kv_heads).select(0, 0).narrow(0, 0, sequence.key_length);
  } else {
    keys = Rows(Canonical(cache.tensor, query_layout, kv_heads), index, sequence.key_start, sequence.key_length);
  }
  keys = Dequantized(keys.to(at::kFloat), cache.dequantization, table, index);
  if (!cache.prefix) {
    return keys;
  }
  const at::Tensor prefix = Canonical(*cache.prefix, query_layout, kv_heads).select(0, 0).narrow(0, 0, prefix_length);
  return at::cat({prefix.to(at::kFloat), keys}, 0);
}

at::Tensor FusedInferAttention::Dequantized(const at::Tensor& keys, const Dequantization& how, const at::Tensor& table,
                                            size_t index) const {
  if (!how.scale.defined()) {
    return keys;
  }
  const int64_t length = keys.size(0);
  // `parameters` as they broadcast with [length, heads, D].
  const auto spread = [&](const at::Tensor& parameters) {
    const at::Tensor wide = parameters.to(at::kFloat);
    const auto entry = static_cast<int64_t>(index);
    switch (how.mode) {
      case Dequantization::kTokens: return wide.select(0, entry).narrow(0, 0, length).view({-1, 1, 1});
      case Dequantization::kHeads: return wide.view({1, -1, 1});
      case Dequantization::kTokensOfHeads:
        return wide.select(0, entry).narrow(1, 0, length).transpose(0, 1).unsqueeze(-1);
      case Dequantization::kPagedTokens:
      case Dequantization::kPagedTokensOfHeads: {
        const bool by_head = how.mode == Dequantization::kPagedTokensOfHeads;
        const at::Tensor blocks = by_head ? wide.transpose(1, 2) : wide.unsqueeze(-1);
        return PagedRows(blocks, table.select(0, entry), length, "blockTable", index).unsqueeze(-1);
      }
      default: return wide.numel() == 1 ? wide.view({1, 1, 1}) : wide.view({1, keys.size(1), keys.size(2)});
    }
  };
  return (how.offset.defined() ? keys.add(spread(how.offset)) : keys).mul(spread(how.scale));
}

at::Tensor FusedInferAttention::OutputView(const at::Tensor& tensor) const {
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
  } else if (cache.rank() == 5) {  // [blocks, kv_heads, D / last, block_size, last]
    blocks = blocks.permute({0, 3, 1, 2, 4});
  }
  return PagedRows(blocks, row, length, "blockTable", index).reshape({length, kv_heads, CacheDim(*this, cache)});
}

at::Tensor FusedInferAttention::Shift(size_t index) const {
  if (!position_shift) {
    return at::Tensor();
  }
  const at::Tensor all = *position_shift;
  const Sequence& sequence = sequences[index];
  return all.select(0, all.size(0) == 1 ? 0 : static_cast<int64_t>(index))
      .narrow(1, 0, sequence.query_length)
      .narrow(2, 0, prefix_length + sequence.key_length)
      .to(at::kFloat)
      .contiguous();
}

std::vector<Sequence> FusedInferAttention::Aligned() const {
  std::vector<Sequence> moved = sequences;
  const auto start = [](const OptionalTensor& padding, int64_t span, int64_t length) {
    const int64_t behind = std::max<int64_t>(at::Tensor(*padding).reshape({-1})[0].item<int64_t>(), 0);
    const int64_t first = span - behind - length;
    if (first < 0) {
      throw Refusal(std::string("argument '") + padding.name() + "': expected at most " + std::to_string(span - length) +
                    " rows behind " + std::to_string(length) + ", found " + std::to_string(behind));
    }
    return first;
  };
  for (Sequence& sequence : moved) {
    if (query_padding && query_span() > 1) {
      sequence.query_start = start(query_padding, query_span(), sequence.query_length);
    }
    if (key_padding) {
      sequence.key_start = start(key_padding, key.size(query_layout == QueryLayout::kBNSD ? 2 : 1), sequence.key_length);
    }
  }
  return moved;
}

at::Tensor FusedInferAttention::Hidden(size_t index) const {
  const Sequence& sequence = sequences[index];
  const int64_t keys = prefix_length + sequence.key_length;
  const int64_t shift = keys - sequence.query_length;
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
    return HiddenKeys(visibility, sequence.query_length, keys);
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
  hidden = full.narrow(1, 0, keys);
  if (sparse_mode == 0 && !decodes()) {
    const at::Tensor band =
        HiddenKeys({0, next_tokens, pre_tokens}, sequence.query_length, keys);
    hidden = band.defined() ? hidden.logical_or(band) : hidden;
  }
  return hidden;
}

void FusedInferAttention::StoreOutput(const at::Tensor& attention) const {
  if (!output_scale) {
    output.Store(attention);
    return;
  }
  // One scale, or one for each head and dimension.
  const auto spread = [&](const OptionalTensor& parameters) {
    const at::Tensor wide = parameters->Widened();
    return wide.numel() == 1 ? wide.reshape({}) : wide.reshape({heads, -1});
  };
  const at::Tensor view = OutputView(attention);
  view.mul_(spread(output_scale));
  if (output_offset) {
    view.add_(spread(output_offset));
  }
  StoreRounded(output, attention);
}

void FusedInferAttention::Run() const {
  if (query_padding || key_padding) {
    FusedInferAttention aligned = *this;
    aligned.sequences = Aligned();
    aligned.query_padding = aligned.key_padding = OptionalTensor();
    aligned.Run();
    return;
  }
  const at::Tensor whole = at::zeros(output.sizes(), at::kFloat);
  const at::Tensor outputs = OutputView(whole);
  const at::Tensor table = block_table;
  const at::Tensor sinks = sink ? at::Tensor(*sink).to(at::kFloat) : at::Tensor();
  // [B, N, S, 1] or [T, N, 1], turned so that the rows of a sequence come first.
  at::Tensor logarithms;
  if (wants_log_sum_exp) {
    const at::Tensor flat = at::Tensor(log_sum_exp).squeeze(-1);
    logarithms = packed() ? flat : flat.transpose(1, 2);
  }
  const OptionalTensor none;
  const Dequantization plain;
  for (size_t index = 0; index < sequences.size(); ++index) {
    const Sequence& sequence = sequences[index];
    at::Tensor own_queries = Queries(query, sequence, index);
    at::Tensor own_keys = Keys({key, key_list, key_dequantization, key_prefix}, table, index);
    if (query_rope) {
      own_queries = at::cat({own_queries, Queries(*query_rope, sequence, index)}, -1);
      // The scale of int8 keys is that of their rotary parts too.
      const Dequantization& how = query_scale ? key_dequantization : plain;
      own_keys = at::cat({own_keys, Keys({*key_rope, {}, how, none}, table, index)}, -1);
    }
    if (query_scale) {
      own_queries = own_queries.mul(QueryScales(sequence, index));
    }
    const at::Tensor own_values = Keys({value, value_list, value_dequantization, value_prefix}, table, index);
    const AttentionResult result =
        Attend(own_queries, own_keys, own_values, scale, Hidden(index), sinks, Shift(index));
    Rows(outputs, index, sequence.query_start, sequence.query_length).copy_(result.output);
    if (wants_log_sum_exp) {
      Rows(logarithms, index, sequence.query_start, sequence.query_length).copy_(result.log_sum_exp);
    }
  }
  StoreOutput(whole);
}

}  // namespace cann_sim::operators
