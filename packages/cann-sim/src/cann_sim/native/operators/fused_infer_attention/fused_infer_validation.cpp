#include "fused_infer_validation.h"

#include "../interface/validation.h"

namespace cann_sim::operators {

namespace {

constexpr LayoutPair kLayouts[] = {
    {"BSH", QueryLayout::kBSH, OutputLayout::kBSH},          {"BSND", QueryLayout::kBSND, OutputLayout::kBSND},
    {"BNSD", QueryLayout::kBNSD, OutputLayout::kBNSD},       {"BNSD_BSND", QueryLayout::kBNSD, OutputLayout::kBSND},
    {"BSH_BNSD", QueryLayout::kBSH, OutputLayout::kBNSD},    {"BSND_BNSD", QueryLayout::kBSND, OutputLayout::kBNSD},
    {"BSH_NBSD", QueryLayout::kBSH, OutputLayout::kNBSD},    {"BSND_NBSD", QueryLayout::kBSND, OutputLayout::kNBSD},
    {"BNSD_NBSD", QueryLayout::kBNSD, OutputLayout::kNBSD},  {"TND", QueryLayout::kTND, OutputLayout::kTND},
    {"NTD", QueryLayout::kNTD, OutputLayout::kNTD},          {"TND_NTD", QueryLayout::kTND, OutputLayout::kNTD},
    {"NTD_TND", QueryLayout::kNTD, OutputLayout::kTND},
};

constexpr int64_t kLongestHead = 512;
constexpr int64_t kLargestBlock = 1024;
constexpr int64_t kRopeDim = 64;
// Elements of half precision in the innermost dimension of a five-dimensional (NZ) cache.
constexpr int64_t kHalfUnit = 16;
// Head dimensions of the part without rotation: of compressed keys and values that all heads share, and of plain ones.
constexpr int64_t kLatentDim = 512;
constexpr int64_t kPlainDim = 128;

// Length of batch entry `index`: one value may apply to all of them; without values all have `whole`.
int64_t LengthOf(const OptionalIntArray& lengths, size_t index, int64_t whole) {
  if (!lengths || lengths.values().empty()) {
    return whole;
  }
  return lengths.values().size() == 1 ? lengths.values()[0] : lengths.values()[index];
}

void RequireLength(const OptionalIntArray& lengths, size_t index, int64_t length, int64_t most) {
  if (length < 0 || length > most) {
    RefuseArgument(lengths.name(), "entry " + std::to_string(index) + " in [0, " + std::to_string(most) + "]",
                   std::to_string(length));
  }
}

void RequireCount(const OptionalIntArray& lengths, int64_t batch) {
  const auto count = static_cast<int64_t>(lengths.values().size());
  if (lengths && count != 0 && count != 1 && count < batch) {
    RefuseArgument(lengths.name(), "1 or at least " + std::to_string(batch) + " entries", std::to_string(count));
  }
}

// Difference of entry `index` from the one before, of running totals that must not fall and must end within `rows`.
int64_t FromCumulative(const OptionalIntArray& totals, size_t index, int64_t rows) {
  const int64_t before = index == 0 ? 0 : totals.values()[index - 1];
  const int64_t total = totals.values()[index];
  if (total < before || total > rows) {
    RefuseArgument(totals.name(), "running totals that never fall and end at most at " + std::to_string(rows),
                   Describe(totals.values()));
  }
  return total - before;
}

}  // namespace

const LayoutPair& FindLayout(const Text& layout) {
  for (const LayoutPair& pair : kLayouts) {
    if (layout.value() == pair.name) {
      return pair;
    }
  }
  std::string known;
  for (const LayoutPair& pair : kLayouts) {
    known += std::string(known.empty() ? "" : ", ") + pair.name;
  }
  RefuseArgument(layout.name(), "one of the layouts " + known, "\"" + layout.value() + "\"");
}

std::vector<Sequence> PackedSequences(const FusedInferAttention& call, const OptionalIntArray& query_totals,
                                      const OptionalIntArray& key_lengths) {
  if (!query_totals || !key_lengths) {
    const OptionalIntArray& absent = query_totals ? key_lengths : query_totals;
    RefuseArgument(absent.name(), "a value, since the layout packs the sequences", "none");
  }
  const size_t count = query_totals.values().size();
  if (key_lengths.values().size() != count) {
    RefuseArgument(key_lengths.name(), std::to_string(count) + " entries as '" + query_totals.name() + "'",
                   std::to_string(key_lengths.values().size()));
  }
  const bool paged = static_cast<bool>(call.block_table);
  const int64_t query_rows = call.query_span();
  const int64_t key_rows = paged                                      ? call.block_table->size(1) * call.block_size
                           : call.query_layout == QueryLayout::kTND ? call.key.size(0)
                                                                    : call.key.size(1);
  std::vector<Sequence> sequences;
  sequences.reserve(count);
  int64_t query_start = 0;
  int64_t key_start = 0;
  for (size_t index = 0; index < count; ++index) {
    const int64_t query_length = FromCumulative(query_totals, index, query_rows);
    const int64_t key_length = paged ? key_lengths.values()[index] : FromCumulative(key_lengths, index, key_rows);
    if (paged) {
      RequireLength(key_lengths, index, key_length, key_rows);
    }
    sequences.push_back({query_start, query_length, paged ? 0 : key_start, key_length});
    query_start += query_length;
    key_start += key_length;
  }
  return sequences;
}

std::vector<Sequence> BatchSequences(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                                     const OptionalIntArray& key_lengths) {
  const int64_t batch = call.query.size(0);
  const bool paged = static_cast<bool>(call.block_table);
  const int64_t key_span = paged ? call.block_table->size(1) * call.block_size
                                 : call.key.size(call.query_layout == QueryLayout::kBNSD ? 2 : 1);
  const auto span_of = [&](size_t index) {
    return call.key_list.empty() ? key_span : call.key_list[index].size(call.query_layout == QueryLayout::kBNSD ? 2 : 1);
  };
  if (paged && !key_lengths) {
    RefuseArgument(key_lengths.name(), "a value, since the keys are paged", "none");
  }
  RequireCount(query_lengths, batch);
  RequireCount(key_lengths, batch);
  std::vector<Sequence> sequences;
  sequences.reserve(static_cast<size_t>(batch));
  for (size_t index = 0; index < static_cast<size_t>(batch); ++index) {
    // The decode kernel has one query position and does not read the query lengths.
    const int64_t query_length =
        call.query_span() == 1 ? 1 : LengthOf(query_lengths, index, call.query_span());
    const int64_t key_length = LengthOf(key_lengths, index, span_of(index));
    RequireLength(query_lengths, index, query_length, call.query_span());
    RequireLength(key_lengths, index, key_length, span_of(index));
    sequences.push_back({0, query_length, 0, key_length});
  }
  return sequences;
}

void RequirePages(const FusedInferAttention& call, int64_t batch) {
  const Tensor& table = *call.block_table;
  RequireDtype(table, {c10::ScalarType::Int});
  RequireRank(table, 2, 2);
  RequireContiguous(table);
  if (table.size(0) < batch) {
    RefuseArgument(table.name(), "at least " + std::to_string(batch) + " rows, one a sequence", Describe(table.sizes()));
  }
  if (call.block_size <= 0 || call.block_size % 16 != 0 || call.block_size > kLargestBlock) {
    RefuseArgument("blockSize", "a multiple of 16 in [16, " + std::to_string(kLargestBlock) + "]",
                   std::to_string(call.block_size));
  }
  for (const Tensor* cache : {&call.key, &call.value}) {
    RequireRank(*cache, 3, 5);
    bool fits = cache->rank() == 3 ? cache->size(1) == call.block_size && cache->size(2) % call.kv_heads == 0
                                   : cache->size(1) == call.kv_heads && cache->size(2) == call.block_size;
    if (cache->rank() == 5) {
      const int64_t unit = cache->dtype() == c10::ScalarType::Char ? 2 * kHalfUnit : kHalfUnit;
      fits = cache->size(1) == call.kv_heads && cache->size(3) == call.block_size && cache->size(4) == unit;
    }
    if (!fits) {
      RefuseArgument(cache->name(),
                     "[blocks, block size, heads * dim], [blocks, heads, block size, dim] or [blocks, heads, dim / unit, "
                     "block size, unit] with units of 32 bytes, block size " +
                         std::to_string(call.block_size) + " and " + std::to_string(call.kv_heads) + " heads",
                     Describe(cache->sizes()));
    }
  }
}

void RequireHeads(const FusedInferAttention& call) {
  if (call.heads <= 0 || call.kv_heads <= 0 || call.heads % call.kv_heads != 0) {
    RefuseArgument("numKeyValueHeads", "a divisor of the " + std::to_string(call.heads) + " query heads",
                   std::to_string(call.kv_heads));
  }
  const auto require_axis = [](const Tensor& tensor, QueryLayout layout, int64_t heads) {
    const bool fits = layout == QueryLayout::kBSH    ? tensor.size(2) % heads == 0
                      : layout == QueryLayout::kBSND ? tensor.size(2) == heads
                      : layout == QueryLayout::kNTD  ? tensor.size(0) == heads
                                                     : tensor.size(1) == heads;
    if (!fits) {
      RefuseArgument(tensor.name(), std::to_string(heads) + " heads", "shape " + Describe(tensor.sizes()));
    }
  };
  require_axis(call.query, call.query_layout, call.heads);
  if (!call.block_table) {
    require_axis(call.key, call.query_layout, call.kv_heads);
    require_axis(call.value, call.query_layout, call.kv_heads);
  }
  const int64_t dim = DimOf(call.query, call.query_layout, call.heads);
  if (dim <= 0 || dim > kLongestHead || dim % 8 != 0) {
    RefuseArgument(call.query.name(), "a head dimension of at most " + std::to_string(kLongestHead) +
                                          " in whole units of 16 bytes", std::to_string(dim));
  }
}

namespace {

// `rope` must be shaped as `tensor` but for 64 in place of the head dimension.
void RequireRopeShape(const Tensor& rope, const Tensor& tensor, int64_t dim) {
  const bool narrow = tensor.dtype() == c10::ScalarType::Char;
  if (narrow) {
    RequireDtype(rope, {c10::ScalarType::BFloat16});
  } else {
    RequireSameDtype(rope, tensor);
  }
  std::vector<int64_t> expected = tensor.sizes().vec();
  if (expected.size() == 5) {
    expected.back() = narrow ? kHalfUnit : expected.back();
    expected[2] = kRopeDim / expected.back();
  } else {
    expected.back() = expected.back() / dim * kRopeDim;
  }
  RequireShape(rope, expected);
}

// Which pairs of layouts the device accepts with rotary parts depends on the head dimension.
bool RopeFitsLayout(const FusedInferAttention& call, int64_t dim) {
  const bool first_heads = call.output_layout == OutputLayout::kNBSD ||
                           (call.query_layout == QueryLayout::kTND && call.output_layout == OutputLayout::kNTD);
  if (dim == kPlainDim) {
    return !first_heads;
  }
  const bool unchanged = (call.query_layout == QueryLayout::kBSH && call.output_layout == OutputLayout::kBSH) ||
                         (call.query_layout == QueryLayout::kBSND && call.output_layout == OutputLayout::kBSND) ||
                         (call.query_layout == QueryLayout::kBNSD && call.output_layout == OutputLayout::kBNSD) ||
                         (call.query_layout == QueryLayout::kTND && call.output_layout == OutputLayout::kTND);
  const bool bad_for_units = call.query_layout == QueryLayout::kBNSD && call.key.rank() == 5;
  return (first_heads || unchanged) && !bad_for_units;
}

}  // namespace

void RequireRope(const FusedInferAttention& call) {
  if (!call.query_rope && !call.key_rope) {
    return;
  }
  if (!call.query_rope || !call.key_rope) {
    RefuseArgument(call.query_rope ? call.key_rope.name() : call.query_rope.name(), "both rotary parts or none", "one");
  }
  const int64_t dim = DimOf(call.query, call.query_layout, call.heads);
  if (dim != kLatentDim && dim != kPlainDim) {
    RefuseArgument(call.query.name(), "a head dimension of 512 or 128 beside a rotary part", std::to_string(dim));
  }
  RequireRopeShape(*call.query_rope, call.query, dim);
  RequireContiguous(*call.key_rope);
  RequireRopeShape(*call.key_rope, call.key, CacheDim(call, call.key));
  if (CacheDim(call, call.value) != dim) {
    RefuseArgument(call.value.name(), "a head dimension of " + std::to_string(dim) + " as 'query'",
                   std::to_string(CacheDim(call, call.value)));
  }
  if (!RopeFitsLayout(call, dim)) {
    RefuseArgument("inputLayout", "one that the device takes beside a rotary part with a head dimension of " +
                                      std::to_string(dim), "another");
  }
  if (dim == kLatentDim) {
    const bool power = (call.heads & (call.heads - 1)) == 0;
    if (!power || call.heads > 128 || call.kv_heads != 1) {
      RefuseArgument(call.query.name(), "a power of two of at most 128 heads, and 1 head of 'key'",
                     std::to_string(call.heads) + " and " + std::to_string(call.kv_heads));
    }
    if (call.sparse_mode != 0 && call.sparse_mode != 3 && call.sparse_mode != 4) {
      RefuseArgument("sparseMode", "0, 3 or 4 beside a rotary part with a head dimension of 512",
                     std::to_string(call.sparse_mode));
    }
  }
}

void RequireMask(const FusedInferAttention& call) {
  if (call.sparse_mode < 0 || call.sparse_mode > 4) {
    RefuseArgument("sparseMode", "0 (mask), 1 (whole mask), 2 (left up causal), 3 (right down causal) or 4 (band)",
                   std::to_string(call.sparse_mode));
  }
  if (!call.mask) {
    if (call.sparse_mode != 0 && !call.decodes()) {
      RefuseArgument("attenMask", "a value for sparse mode " + std::to_string(call.sparse_mode), "none");
    }
    return;
  }
  const Tensor& mask = *call.mask;
  RequireDtype(mask, kBool | DtypeSet{c10::ScalarType::Char, c10::ScalarType::Byte});
  RequireContiguous(mask);
  RequireRank(mask, 2, 4);
  const std::string sides = std::to_string(kCompressedMaskSize);
  if (call.sparse_mode >= 2) {
    if (mask.size(-1) != kCompressedMaskSize || mask.size(-2) != kCompressedMaskSize ||
        mask.numel() != kCompressedMaskSize * kCompressedMaskSize) {
      RefuseArgument(mask.name(), "the compressed mask of sparse mode " + std::to_string(call.sparse_mode) + ", [" +
                                      sides + ", " + sides + "]", Describe(mask.sizes()));
    }
    return;
  }
  if (call.packed()) {
    RefuseArgument(mask.name(), "sparse mode 2, 3 or 4 with the compressed mask, since the layout packs the sequences",
                   "sparse mode " + std::to_string(call.sparse_mode));
  }
  for (const Sequence& sequence : call.sequences) {
    const bool rows_fit = mask.rank() == 2 && call.decodes() ? mask.size(0) >= call.query.size(0)
                                                      : mask.size(-2) >= sequence.query_length;
    const int64_t keys = call.prefix_length + sequence.key_length;
    if (!rows_fit || mask.size(-1) < keys) {
      RefuseArgument(mask.name(), "at least [" + std::to_string(sequence.query_length) + ", " + std::to_string(keys) + "]",
                     Describe(mask.sizes()));
    }
  }
}

void RequireOutputs(const FusedInferAttention& call) {
  const int64_t dim = CacheDim(call, call.value);
  const int64_t span = call.query_span();
  const int64_t batch = call.packed() ? 0 : call.query.size(0);
  switch (call.output_layout) {
    case OutputLayout::kBSH: RequireShape(call.output, {batch, span, call.heads * dim}); break;
    case OutputLayout::kBSND: RequireShape(call.output, {batch, span, call.heads, dim}); break;
    case OutputLayout::kBNSD: RequireShape(call.output, {batch, call.heads, span, dim}); break;
    case OutputLayout::kNBSD: RequireShape(call.output, {call.heads, batch, span, dim}); break;
    case OutputLayout::kTND: RequireShape(call.output, {span, call.heads, dim}); break;
    case OutputLayout::kNTD: RequireShape(call.output, {call.heads, span, dim}); break;
  }
  if (call.output_scale) {
    RequireDtype(call.output, {c10::ScalarType::Char});
    RequireDtype(*call.output_scale, {c10::ScalarType::Float, c10::ScalarType::BFloat16});
    if (call.packed() || (call.output_scale->numel() != 1 && call.output_scale->numel() != call.heads * dim)) {
      RefuseArgument(call.output_scale.name(),
                     "1 or " + std::to_string(call.heads * dim) + " elements, in a layout with a batch dimension",
                     Describe(call.output_scale->sizes()));
    }
    if (call.output_offset) {
      RequireSameDtype(*call.output_offset, *call.output_scale);
      RequireShape(*call.output_offset, call.output_scale->sizes());
    }
  } else {
    if (call.query_scale) {
      RequireDtype(call.output, {c10::ScalarType::BFloat16});
    } else {
      RequireSameDtype(call.output, call.query);
    }
    if (call.output_offset) {
      RefuseArgument(call.output_offset.name(), "none without a scale of the output", "a tensor");
    }
  }
  if (call.wants_log_sum_exp) {
    RequireDtype(call.log_sum_exp, {c10::ScalarType::Float});
    if (call.packed()) {
      RequireShape(call.log_sum_exp, {span, call.heads, 1});
    } else {
      RequireShape(call.log_sum_exp, {batch, call.heads, span, 1});
    }
  }
}

}  // namespace cann_sim::operators
