#include "flash_attention.h"

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <optional>
#include <string>

#include "attention.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// How many equal copies of each statistic the device stores.
constexpr int64_t kStatisticCopies = 8;
constexpr int64_t kCompressedSide = 2048;
constexpr int64_t kLongestHead = 768;

struct NamedLayout {
  const char* name;
  FlashLayout layout;
};

constexpr NamedLayout kLayouts[] = {{"BSH", FlashLayout::kBSH},
                                    {"SBH", FlashLayout::kSBH},
                                    {"BSND", FlashLayout::kBSND},
                                    {"BNSD", FlashLayout::kBNSD},
                                    {"TND", FlashLayout::kTND}};

void RequireTotals(const std::vector<int64_t>& totals, const char* name, int64_t rows) {
  int64_t before = 0;
  for (int64_t total : totals) {
    if (total < before || total > rows) {
      RefuseArgument(name, "running totals that never fall and end at most at " + std::to_string(rows), Describe(totals));
    }
    before = total;
  }
}

at::Tensor WithRope(const at::Tensor& tensor, const at::Tensor& rope) { return at::cat({tensor, rope}, -1); }

}  // namespace

FlashLayout FlashLayoutOf(const Text& name) {
  std::string known;
  for (const NamedLayout& candidate : kLayouts) {
    if (name.value() == candidate.name) {
      return candidate.layout;
    }
    known += std::string(known.empty() ? "" : ", ") + candidate.name;
  }
  RefuseArgument(name.name(), "one of the layouts " + known, name.value());
}

bool StatisticsAsQueries(const OptionalText& layout) {
  if (!layout.value().empty() && layout.value() != "same_as_input") {
    RefuseArgument(layout.name(), "same_as_input, or nothing", layout.value());
  }
  return !layout.value().empty();
}

int64_t FlashAttention::batch() const {
  switch (layout) {
    case FlashLayout::kTND: return static_cast<int64_t>(query_totals.size());
    case FlashLayout::kSBH: return query.size(1);
    default: return query.size(0);
  }
}

int64_t FlashAttention::key_heads() const {
  switch (layout) {
    case FlashLayout::kBNSD:
    case FlashLayout::kTND: return key.size(1);
    case FlashLayout::kBSND: return key.size(2);
    default: return heads * key.size(2) / query.size(2);
  }
}

at::Tensor FlashAttention::Canonical(const at::Tensor& tensor, int64_t own_heads) const {
  switch (layout) {
    case FlashLayout::kBSH: return tensor.unflatten(2, {own_heads, -1});
    case FlashLayout::kSBH: return tensor.unflatten(2, {own_heads, -1}).transpose(0, 1);
    case FlashLayout::kBNSD: return tensor.transpose(1, 2);
    default: return tensor;
  }
}

std::vector<FlashSequence> FlashAttention::Sequences() const {
  std::vector<FlashSequence> sequences;
  const bool seconds = layout == FlashLayout::kBNSD;
  const int64_t whole_queries = layout == FlashLayout::kSBH ? query.size(0) : query.size(seconds ? 2 : 1);
  const int64_t whole_keys = layout == FlashLayout::kSBH ? key.size(0) : key.size(seconds ? 2 : 1);
  int64_t query_start = 0;
  int64_t key_start = 0;
  for (int64_t index = 0; index < batch(); ++index) {
    const auto at = static_cast<size_t>(index);
    const int64_t queries = packed() ? query_totals[at] - query_start : whole_queries;
    const int64_t keys = packed() ? key_totals[at] - key_start : whole_keys;
    sequences.push_back({index, query_start, queries, key_start, keys});
    query_start += queries;
    key_start += keys;
  }
  return sequences;
}

at::Tensor FlashAttention::QueryRows(const at::Tensor& canonical, const FlashSequence& sequence) const {
  return packed() ? canonical.narrow(0, sequence.query_start, sequence.queries) : canonical.select(0, sequence.index);
}

at::Tensor FlashAttention::KeyRows(const at::Tensor& canonical, const FlashSequence& sequence) const {
  return packed() ? canonical.narrow(0, sequence.key_start, sequence.keys) : canonical.select(0, sequence.index);
}

at::Tensor FlashAttention::Queries() const {
  const at::Tensor rows = Canonical(query.Widened(), heads);
  return query_rope ? WithRope(rows, Canonical(query_rope->Widened(), heads)) : rows;
}

at::Tensor FlashAttention::Keys() const {
  const at::Tensor rows = Canonical(key.Widened(), key_heads());
  return key_rope ? WithRope(rows, Canonical(key_rope->Widened(), key_heads())) : rows;
}

at::Tensor FlashAttention::Statistic(const at::Tensor& whole, const FlashSequence& sequence) const {
  if (!packed()) {
    return whole.select(0, sequence.index).transpose(0, 1);
  }
  const at::Tensor rows = whole.narrow(0, sequence.query_start, sequence.queries);
  return statistics_as_queries ? rows : rows.view({heads, sequence.queries, kStatisticCopies}).transpose(0, 1);
}

void FlashAttention::Require() const {
  RequireDtype(query, kFloats);
  const int rank = layout == FlashLayout::kBSND || layout == FlashLayout::kBNSD ? 4 : 3;
  for (const Tensor& tensor : {query, key, value}) {
    RequireSameDtype(tensor, query);
    RequireRank(tensor, rank, rank);
  }
  if (heads <= 0) {
    RefuseArgument("headNum", "at least 1", std::to_string(heads));
  }
  const bool flat = layout == FlashLayout::kBSH || layout == FlashLayout::kSBH;
  const int64_t own_heads = flat ? heads : layout == FlashLayout::kBSND ? query.size(2) : query.size(1);
  if (own_heads != heads || (flat && query.size(2) % heads != 0)) {
    RefuseArgument(query.name(), std::to_string(heads) + " heads", Describe(query.sizes()));
  }
  const int64_t groups = key_heads();
  if (groups <= 0 || heads % groups != 0 || (flat && key.size(2) % groups != 0)) {
    RefuseArgument(key.name(), "a number of heads that divides " + std::to_string(heads), Describe(key.sizes()));
  }
  const int64_t dim = flat ? query.size(2) / heads : query.size(-1);
  if (dim <= 0 || dim > kLongestHead) {
    RefuseArgument(query.name(), "a head dimension of at most " + std::to_string(kLongestHead), std::to_string(dim));
  }
  if (sparse_mode < 0 || sparse_mode > 4) {
    RefuseArgument("sparseMode", "0 to 4 (prefixes and bands across sequences are not simulated)", std::to_string(sparse_mode));
  }
  if (pse_type != 0 && pse_type != 1) {
    RefuseArgument("pseType", "0 or 1 (slopes are not simulated)", std::to_string(pse_type));
  }
  if (packed()) {
    RequireTotals(query_totals, "actualSeqQLen", query.size(0));
    RequireTotals(key_totals, "actualSeqKvLen", key.size(0));
    if (query_totals.size() != key_totals.size() || query_totals.empty()) {
      RefuseArgument("actualSeqKvLen", "as many sequences as queries have, at least one", std::to_string(key_totals.size()));
    }
  }
  if (mask) {
    RequireDtype(*mask, kBool | DtypeSet{ScalarType::Byte});
    RequireRank(*mask, 2, 4);
    if (sparse_mode >= 2 && (mask->size(-1) != kCompressedSide || mask->size(-2) != kCompressedSide)) {
      RefuseArgument(mask->name(), "[2048, 2048] in sparse mode " + std::to_string(sparse_mode), Describe(mask->sizes()));
    }
  } else if (sparse_mode != 0) {
    RefuseArgument(mask.name(), "a value for sparse mode " + std::to_string(sparse_mode), "none");
  }
  if (position_shift) {
    RequireRank(*position_shift, 4, 4);
    RequireDtype(*position_shift, {query.dtype()});
    if (packed()) {
      RefuseArgument(position_shift.name(), "none in a packed layout (not simulated)", "a tensor");
    }
  }
  if (sink) {
    RequireDtype(*sink, {ScalarType::Float});
    RequireShape(*sink, {heads});
  }
  if (!(keep > 0.0 && keep <= 1.0) && !(keep == 0.0 && dropped)) {
    RefuseArgument("keepProb", "between 0 and 1", std::to_string(keep));
  }
  if (keep < 1.0) {
    if (!dropped) {
      RefuseArgument(dropped.name(), "a mask where keepProb is below 1", "none");
    }
    RequireDtype(*dropped, {ScalarType::Byte});
    int64_t bits = 0;
    for (const FlashSequence& sequence : Sequences()) {
      bits += heads * sequence.queries * sequence.keys;
    }
    if (dropped->numel() * 8 < bits) {
      RefuseArgument(dropped->name(), "at least " + std::to_string(bits) + " bits, one a weight",
                     std::to_string(dropped->numel()) + " bytes");
    }
  }
}

void FlashAttention::RequireOutput(const Tensor& output) const {
  RequireSameDtype(output, query);
  const bool flat = layout == FlashLayout::kBSH || layout == FlashLayout::kSBH;
  std::vector<int64_t> expected = query.sizes().vec();
  expected.back() = flat ? heads * (value.size(2) / key_heads()) : value.size(-1);
  RequireShape(output, expected);
}

void FlashAttention::RequireStatistic(const Tensor& statistic) const {
  RequireDtype(statistic, {ScalarType::Float});
  if (packed()) {
    RequireShape(statistic, {query.size(0), heads, kStatisticCopies});
    return;
  }
  const int64_t span = layout == FlashLayout::kSBH    ? query.size(0)
                       : layout == FlashLayout::kBNSD ? query.size(2)
                                                      : query.size(1);
  RequireShape(statistic, {batch(), heads, span, kStatisticCopies});
}

at::Tensor FlashAttention::Hidden(const FlashSequence& sequence) const {
  const auto [index, query_start, queries, key_start, keys] = sequence;
  if (!mask) {
    return at::Tensor();
  }
  const int64_t shift = keys - queries;
  switch (sparse_mode) {
    case 2: return HiddenKeys({0, int64_t{0}, std::nullopt}, queries, keys);
    case 3: return HiddenKeys({shift, int64_t{0}, std::nullopt}, queries, keys);
    case 4: return HiddenKeys({shift, next_tokens, pre_tokens}, queries, keys);
    default: break;
  }
  at::Tensor full = at::Tensor(*mask).to(at::kBool);
  if (full.dim() == 4) {
    full = full.select(0, full.size(0) == 1 ? 0 : index);
  }
  if (full.dim() == 3 && full.size(0) == 1) {
    full = full.select(0, 0);
  }
  full = full.narrow(-2, 0, queries).narrow(-1, 0, keys);
  if (sparse_mode == 0) {
    const at::Tensor band = HiddenKeys({0, next_tokens, pre_tokens}, queries, keys);
    full = band.defined() ? full.logical_or(band) : full;
  }
  return full.dim() == 3 ? full.contiguous() : full;
}

at::Tensor FlashAttention::Shift(const FlashSequence& sequence) const {
  if (!position_shift) {
    return at::Tensor();
  }
  // [heads, queries, keys], from [B or 1, heads, queries or 1, keys].
  const at::Tensor all = position_shift->Widened();
  const at::Tensor own = all.select(0, all.size(0) == 1 ? 0 : sequence.index);
  const at::Tensor rows = own.size(1) == 1 ? own : own.narrow(1, 0, sequence.queries);
  // Type 0 adds before it scales.
  return rows.narrow(2, 0, sequence.keys)
      .expand({heads, sequence.queries, sequence.keys})
      .mul(pse_type == 0 ? scale : 1.0)
      .contiguous();
}

at::Tensor FlashAttention::Weights(const FlashSequence& sequence, const at::Tensor& queries, const at::Tensor& keys,
                                   const at::Tensor& largest, const at::Tensor& totals) const {
  const at::Tensor every = keys.repeat_interleave(heads / keys.size(1), 1).permute({1, 2, 0});
  at::Tensor scores = at::bmm(queries.transpose(0, 1), every).mul_(scale);
  const at::Tensor shift = Shift(sequence);
  if (shift.defined()) {
    scores.add_(shift);
  }
  const auto column = [](const at::Tensor& statistic) { return statistic.select(2, 0).transpose(0, 1).unsqueeze(2); };
  scores.sub_(column(largest)).exp_();
  const at::Tensor hidden = Hidden(sequence);
  if (hidden.defined()) {
    scores.masked_fill_(hidden, 0.0);
  }
  const at::Tensor total = column(totals);
  return scores.div_(total).masked_fill_(total.eq(0.0), 0.0);
}

at::Tensor FlashAttention::Kept(const FlashSequence& sequence) const {
  if (keep >= 1.0) {
    return at::Tensor();
  }
  // One bit a weight, the lowest bit of a byte first, [B, N, S, K] or the concatenated [N, S, K] of the sequences.
  int64_t first = 0;
  for (const FlashSequence& before : Sequences()) {
    if (before.index == sequence.index) {
      break;
    }
    first += heads * before.queries * before.keys;
  }
  const int64_t count = heads * sequence.queries * sequence.keys;
  const int64_t first_byte = first / 8;
  const int64_t bytes = (first + count + 7) / 8 - first_byte;
  const at::Tensor shifts = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte);
  const at::Tensor bits = at::Tensor(*dropped).flatten().narrow(0, first_byte, bytes).unsqueeze(1).bitwise_and(shifts).ne(0);
  const at::Tensor own = bits.flatten().narrow(0, first % 8, count).view({heads, sequence.queries, sequence.keys});
  return own.to(at::kFloat).mul_(keep > 0.0 ? 1.0 / keep : 0.0);
}

}  // namespace cann_sim::operators
