// FlashAttentionScore: attention as training asks for it, forward only, with the statistics that its gradient would need.

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <optional>

#include "attention.h"
#include "operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// How many equal copies of each statistic the device stores.
constexpr int64_t kStatisticCopies = 8;
constexpr int64_t kCompressedSide = 2048;
constexpr int64_t kLongestHead = 768;

enum class Layout { kBSH, kSBH, kBSND, kBNSD, kTND };

struct NamedLayout {
  const char* name;
  Layout layout;
};

constexpr NamedLayout kLayouts[] = {{"BSH", Layout::kBSH},
                                    {"SBH", Layout::kSBH},
                                    {"BSND", Layout::kBSND},
                                    {"BNSD", Layout::kBNSD},
                                    {"TND", Layout::kTND}};

struct FlashAttention {
  Tensor query, key, value;
  OptionalTensor query_rope, key_rope, position_shift, mask, sink;
  std::vector<int64_t> query_totals, key_totals;  // of a packed layout
  double scale;
  int64_t pre_tokens, next_tokens, heads, sparse_mode, pse_type;
  Layout layout;
  Tensor softmax_max, softmax_sum, output;

  void Require() const;
  void Run() const;

 private:
  bool packed() const { return layout == Layout::kTND; }
  // [B, S, N, D], or [T, N, D] where the layout packs the sequences.
  at::Tensor Canonical(const at::Tensor& tensor, int64_t own_heads) const;
  int64_t batch() const;
  int64_t key_heads() const;
  at::Tensor Hidden(int64_t index, int64_t queries, int64_t keys) const;
  at::Tensor Shift(int64_t index, int64_t queries, int64_t keys) const;
};

int64_t FlashAttention::batch() const {
  switch (layout) {
    case Layout::kTND: return static_cast<int64_t>(query_totals.size());
    case Layout::kSBH: return query.size(1);
    default: return query.size(0);
  }
}

int64_t FlashAttention::key_heads() const {
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kTND: return key.size(1);
    case Layout::kBSND: return key.size(2);
    default: return heads * key.size(2) / query.size(2);
  }
}

at::Tensor FlashAttention::Canonical(const at::Tensor& tensor, int64_t own_heads) const {
  switch (layout) {
    case Layout::kBSH: return tensor.unflatten(2, {own_heads, -1});
    case Layout::kSBH: return tensor.unflatten(2, {own_heads, -1}).transpose(0, 1);
    case Layout::kBNSD: return tensor.transpose(1, 2);
    default: return tensor;
  }
}

void RequireTotals(const std::vector<int64_t>& totals, const char* name, int64_t rows) {
  int64_t before = 0;
  for (int64_t total : totals) {
    if (total < before || total > rows) {
      RefuseArgument(name, "running totals that never fall and end at most at " + std::to_string(rows), Describe(totals));
    }
    before = total;
  }
}

void FlashAttention::Require() const {
  RequireDtype(query, kFloats);
  const int rank = layout == Layout::kBSND || layout == Layout::kBNSD ? 4 : 3;
  for (const Tensor& tensor : {query, key, value}) {
    RequireSameDtype(tensor, query);
    RequireRank(tensor, rank, rank);
  }
  if (heads <= 0) {
    RefuseArgument("headNum", "at least 1", std::to_string(heads));
  }
  const bool flat = layout == Layout::kBSH || layout == Layout::kSBH;
  const int64_t own_heads = flat ? heads : layout == Layout::kBSND ? query.size(2) : query.size(1);
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
  RequireSameDtype(output, query);
  std::vector<int64_t> expected = query.sizes().vec();
  expected.back() = flat ? heads * (value.size(2) / groups) : value.size(-1);
  RequireShape(output, expected);
  for (const Tensor& statistic : {softmax_max, softmax_sum}) {
    RequireDtype(statistic, {ScalarType::Float});
    if (packed()) {
      RequireShape(statistic, {query.size(0), heads, kStatisticCopies});
    } else {
      const int64_t span = layout == Layout::kSBH ? query.size(0) : layout == Layout::kBNSD ? query.size(2) : query.size(1);
      RequireShape(statistic, {batch(), heads, span, kStatisticCopies});
    }
  }
}

at::Tensor FlashAttention::Hidden(int64_t index, int64_t queries, int64_t keys) const {
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

// [heads, queries, keys], from [B or 1, heads, queries or 1, keys].
at::Tensor FlashAttention::Shift(int64_t index, int64_t queries, int64_t keys) const {
  if (!position_shift) {
    return at::Tensor();
  }
  const at::Tensor all = position_shift->Widened();
  const at::Tensor own = all.select(0, all.size(0) == 1 ? 0 : index);
  const at::Tensor rows = own.size(1) == 1 ? own : own.narrow(1, 0, queries);
  // Type 0 adds before it scales.
  return rows.narrow(2, 0, keys).expand({heads, queries, keys}).mul(pse_type == 0 ? scale : 1.0).contiguous();
}

void FlashAttention::Run() const {
  const auto with_rope = [](const at::Tensor& tensor, const at::Tensor& rope) { return at::cat({tensor, rope}, -1); };
  const int64_t groups = key_heads();
  at::Tensor queries = Canonical(query.Widened(), heads);
  at::Tensor keys = Canonical(key.Widened(), groups);
  const at::Tensor values = Canonical(value.Widened(), groups);
  if (query_rope) {
    queries = with_rope(queries, Canonical(query_rope->Widened(), heads));
    keys = with_rope(keys, Canonical(key_rope->Widened(), groups));
  }
  const at::Tensor whole = at::zeros(output.sizes(), at::kFloat);
  const at::Tensor outputs = Canonical(whole, heads);
  const at::Tensor largest = at::zeros(softmax_max.sizes(), at::kFloat);
  const at::Tensor totals = at::zeros(softmax_max.sizes(), at::kFloat);
  const at::Tensor sinks = at::Tensor(sink);
  int64_t query_start = 0;
  int64_t key_start = 0;
  for (int64_t index = 0; index < batch(); ++index) {
    const auto part = [&](const at::Tensor& tensor, int64_t start, int64_t length) {
      return packed() ? tensor.narrow(0, start, length) : tensor.select(0, index);
    };
    const int64_t own_queries = packed() ? query_totals[static_cast<size_t>(index)] - query_start : queries.size(1);
    const int64_t own_keys = packed() ? key_totals[static_cast<size_t>(index)] - key_start : keys.size(1);
    const AttentionResult result =
        Attend(part(queries, query_start, own_queries).contiguous(), part(keys, key_start, own_keys),
               part(values, key_start, own_keys), scale, Hidden(index, own_queries, own_keys), sinks,
               Shift(index, own_queries, own_keys));
    part(outputs, query_start, own_queries).copy_(result.output);
    const auto statistic = [&](const at::Tensor& target, const at::Tensor& rows) {
      const at::Tensor own = packed() ? target.narrow(0, query_start, own_queries) : target.select(0, index).transpose(0, 1);
      own.copy_(rows.unsqueeze(-1).expand(own.sizes()));
    };
    statistic(largest, result.largest);
    statistic(totals, result.total);
    query_start += own_queries;
    key_start += own_keys;
  }
  output.Store(whole);
  softmax_max.Store(largest);
  softmax_sum.Store(totals);
}

Layout LayoutOf(const Text& name) {
  std::string known;
  for (const NamedLayout& candidate : kLayouts) {
    if (name.value() == candidate.name) {
      return candidate.layout;
    }
    known += std::string(known.empty() ? "" : ", ") + candidate.name;
  }
  RefuseArgument(name.name(), "one of the layouts " + known, name.value());
}

void RefuseDropout(const OptionalTensor& mask, const Double& keep) {
  if ((mask && mask->numel() != 0) || keep != 1.0) {
    RefuseArgument(keep.name(), "1.0 (dropout is not simulated)", std::to_string(keep));
  }
}

Plan MakePlan(const FlashAttention& call) {
  call.Require();
  auto owned = std::make_shared<FlashAttention>(call);
  return [owned] { owned->Run(); };
}

}  // namespace

#define CANN_SIM_FLASH_MASKS                                                                                  \
  (OptionalTensor, pse), (OptionalTensor, dropMask), (OptionalTensor, paddingMask), (OptionalTensor, attenMask)

#define CANN_SIM_FLASH_OPTIONS                                                                                \
  (Double, scale), (Double, keepProb), (Int, preTokens), (Int, nextTokens), (Int, headNum), (Text, inputLayout), \
      (Int, innerPrecise), (Int, sparseMode)

#define CANN_SIM_FLASH_RESULTS (Tensor, softmaxMax), (Tensor, softmaxSum), (OptionalTensor, softmaxOut), (Tensor, attentionOut)

#define CANN_SIM_FLASH_PLAN(QUERY_ROPE, KEY_ROPE, SINK, QUERY_TOTALS, KEY_TOTALS, PSE_TYPE)                           \
  RefuseDropout(dropMask, keepProb);                                                                                  \
  return MakePlan({query, key, value, QUERY_ROPE, KEY_ROPE, pse, attenMask, SINK, QUERY_TOTALS, KEY_TOTALS, scale,    \
                   preTokens, nextTokens, headNum, sparseMode, PSE_TYPE, LayoutOf(inputLayout), softmaxMax, softmaxSum, \
                   attentionOut})

#define CANN_SIM_NONE OptionalTensor()

CANN_SIM_OPERATOR(aclnnFlashAttentionScore, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, {}, {}, 1);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreV2, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), (OptionalIntArray, qStartIdx), (OptionalIntArray, kvStartIdx),
                  CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, {}, {}, pseType);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreV3, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalTensor, sink), (OptionalIntArray, prefix), (OptionalIntArray, qStartIdx),
                  (OptionalIntArray, kvStartIdx), CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, sink, {}, {}, pseType);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScore, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen),
                  CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(), 1);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV2, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen),
                  (OptionalIntArray, qStartIdx), (OptionalIntArray, kvStartIdx), CANN_SIM_FLASH_OPTIONS, (Int, pseType),
                  CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(),
                      pseType);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV3, (Tensor, query), (OptionalTensor, queryRope), (Tensor, key),
                  (OptionalTensor, keyRope), (Tensor, value), CANN_SIM_FLASH_MASKS, (OptionalIntArray, prefix),
                  (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen), (OptionalIntArray, qStartIdx),
                  (OptionalIntArray, kvStartIdx), CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(queryRope, keyRope, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(), pseType);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV5, (Tensor, query), (OptionalTensor, queryRope), (Tensor, key),
                  (OptionalTensor, keyRope), (Tensor, value), CANN_SIM_FLASH_MASKS, (OptionalTensor, sink),
                  (OptionalIntArray, prefix), (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen),
                  (OptionalIntArray, qStartIdx), (OptionalIntArray, kvStartIdx), CANN_SIM_FLASH_OPTIONS, (Int, pseType),
                  (OptionalText, softmaxLayout), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(queryRope, keyRope, sink, actualSeqQLen.values(), actualSeqKvLen.values(), pseType);
}

}  // namespace cann_sim::operators
