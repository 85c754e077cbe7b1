// Checks of the parts of FusedInferAttentionScore that few calls have: int8 caches, a shared prefix, padding on the left, a shift
// of the scores.

#include "../interface/validation.h"
#include "fused_infer_validation.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

int64_t KeySpan(const FusedInferAttention& call, const Tensor& cache) {
  return call.block_table ? call.block_table->size(1) * call.block_size
                          : cache.size(call.query_layout == QueryLayout::kBNSD ? 2 : 1);
}

void RequireSizes(const Tensor& scale, c10::IntArrayRef sizes, c10::IntArrayRef expected, bool fits) {
  if (!fits) {
    RefuseArgument(scale.name(), "shape " + Describe(expected) + " for keys or values", Describe(sizes));
  }
}

// Leading dimensions of size 1 do not count.
c10::IntArrayRef WithoutLeadingOnes(c10::IntArrayRef sizes, size_t rank) {
  while (sizes.size() > rank && sizes[0] == 1) {
    sizes = sizes.slice(1);
  }
  return sizes;
}

}  // namespace

void RequireDequantization(const FusedInferAttention& call, const Tensor& cache, const Tensor& scale,
                           c10::IntArrayRef sizes, int64_t mode, Dequantization& how) {
  RequireDtype(cache, {ScalarType::Char});
  const bool several = call.block_table && call.query_span() != 1 && cache.rank() != 5;
  if (call.packed() || call.query_rope || several) {
    RefuseArgument(scale.name(), "none in a packed layout, beside rotary parts, or with several query positions and pages of "
                                 "less than five dimensions",
                   "a tensor");
  }
  const int64_t most = call.query_span() == 1 ? 5 : 1;
  if (mode < 0 || mode > most) {
    RefuseArgument(scale.name(), "a mode of 0 to " + std::to_string(most), std::to_string(mode));
  }
  how.mode = static_cast<Dequantization::Mode>(mode);
  int64_t count = 1;
  for (int64_t size : sizes) {
    count *= size;
  }
  const int64_t batch = call.query.size(0);
  std::vector<int64_t> shape{count};
  switch (how.mode) {
    case Dequantization::kChannels: {
      RequireDtype(scale, {call.query.dtype()});
      const int64_t channels = call.kv_heads * CacheDim(call, cache);
      RequireSizes(scale, sizes, {channels}, count == 1 || count == channels);
      break;
    }
    case Dequantization::kHeads:
      RequireDtype(scale, {call.query.dtype()});
      RequireSizes(scale, sizes, {call.kv_heads}, count == call.kv_heads);
      break;
    case Dequantization::kTokens: {
      RequireDtype(scale, {ScalarType::Float});
      const c10::IntArrayRef own = WithoutLeadingOnes(sizes, 2);
      const int64_t keys = KeySpan(call, cache);
      RequireSizes(scale, sizes, {batch, keys}, own.size() == 2 && own[0] == batch && own[1] >= keys);
      shape = own.vec();
      break;
    }
    case Dequantization::kTokensOfHeads: {
      RequireDtype(scale, {ScalarType::Float});
      const c10::IntArrayRef own = WithoutLeadingOnes(sizes, 3);
      const int64_t keys = KeySpan(call, cache);
      RequireSizes(scale, sizes, {batch, call.kv_heads, keys},
                   own.size() == 3 && own[0] == batch && own[1] == call.kv_heads && own[2] >= keys);
      shape = own.vec();
      break;
    }
    default: {
      RequireDtype(scale, {ScalarType::Float});
      if (!call.block_table) {
        RefuseArgument(scale.name(), "pages in the modes 4 and 5", "none");
      }
      shape = how.mode == Dequantization::kPagedTokens
                  ? std::vector<int64_t>{cache.size(0), call.block_size}
                  : std::vector<int64_t>{cache.size(0), call.kv_heads, call.block_size};
      RequireSizes(scale, sizes, shape, sizes == c10::IntArrayRef(shape));
      break;
    }
  }
  how.scale = how.scale.view(shape);
  how.offset = how.offset.defined() ? how.offset.view(shape) : how.offset;
}

void RequirePrefix(FusedInferAttention& call, const OptionalIntArray* length) {
  if (!call.key_prefix && !call.value_prefix) {
    return;
  }
  if (!call.key_prefix || !call.value_prefix) {
    RefuseArgument(call.key_prefix ? call.value_prefix.name() : call.key_prefix.name(), "both prefixes or none", "one");
  }
  if (call.packed() || call.block_table || call.query_rope || !call.key_list.empty() || call.query_padding || call.key_padding) {
    RefuseArgument(call.key_prefix.name(), "none in a packed layout, beside pages, rotary parts, lists or padding", "a tensor");
  }
  const int axis = call.query_layout == QueryLayout::kBNSD ? 2 : 1;
  std::vector<int64_t> expected = call.key.sizes().vec();
  expected[0] = 1;
  for (const OptionalTensor& prefix : {call.key_prefix, call.value_prefix}) {
    RequireDtype(*prefix, {call.query.dtype()});
    RequireRank(*prefix, call.key.rank(), call.key.rank());
    RequireContiguous(*prefix);
    expected[static_cast<size_t>(axis)] = prefix->size(axis);
    RequireShape(*prefix, expected);
  }
  call.prefix_length = call.key_prefix->size(axis);
  if (length != nullptr && *length && !length->values().empty()) {
    const int64_t own = length->values()[0];
    if (length->values().size() != 1 || own < 0 || own > call.prefix_length) {
      RefuseArgument(length->name(), "one length of at most " + std::to_string(call.prefix_length), Describe(length->values()));
    }
    call.prefix_length = own;
  }
}

void RequirePadding(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                    const OptionalIntArray& key_lengths) {
  for (const auto& [padding, lengths] : {std::pair(&call.query_padding, &query_lengths), std::pair(&call.key_padding, &key_lengths)}) {
    if (!*padding) {
      continue;
    }
    RequireDtype(**padding, {ScalarType::Long});
    if (call.packed() || call.block_table || call.query_rope || !*lengths) {
      RefuseArgument(padding->name(), "lengths of the sequences, in a layout with a batch, without pages or rotary parts",
                     "others");
    }
  }
}

void RequirePositionShift(const FusedInferAttention& call) {
  if (!call.position_shift) {
    return;
  }
  const Tensor& shift = *call.position_shift;
  RequireSameDtype(shift, call.query);
  RequireContiguous(shift);
  RequireRank(shift, 4, 4);
  if (call.packed() || call.query_rope) {
    RefuseArgument(shift.name(), "none in a packed layout or beside rotary parts", "a tensor");
  }
  const int64_t batch = call.query.size(0);
  for (const Sequence& sequence : call.sequences) {
    const int64_t keys = call.prefix_length + sequence.key_length;
    if ((shift.size(0) != 1 && shift.size(0) != batch) || shift.size(1) != call.heads ||
        shift.size(2) < sequence.query_length || shift.size(3) < keys) {
      RefuseArgument(shift.name(), "[1 or " + std::to_string(batch) + ", " + std::to_string(call.heads) + ", at least " +
                                       std::to_string(sequence.query_length) + ", at least " + std::to_string(keys) + "]",
                     Describe(shift.sizes()));
    }
  }
}

}  // namespace cann_sim::operators
