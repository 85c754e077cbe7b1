// Copying tokens to the rows of their experts.

#include "moe_routing.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "../interface/operator.h"
#include "../quantization/quantization.h"

namespace cann_sim::operators {

using c10::ScalarType;

SortedChoices SortChoices(const at::Tensor& experts, int64_t begin, int64_t end) {
  const at::Tensor flat = experts.reshape({-1}).to(at::kLong);
  // As the device sorts: an expert before `begin` counts as the last of all.
  const at::Tensor keys = flat.masked_fill(flat.lt(begin), std::numeric_limits<int32_t>::max());
  const auto [sorted, order] = at::sort(keys, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t count = sorted.lt(end).sum().item<int64_t>();
  return {order.narrow(0, 0, count), sorted.narrow(0, 0, count), order.narrow(0, count, order.size(0) - count)};
}

at::Tensor CountChoices(const SortedChoices& sorted, int64_t begin, int64_t end) {
  return at::bincount(sorted.experts.sub(begin), {}, end - begin);
}

at::Tensor SlotsWithCapacity(const SortedChoices& sorted, const at::Tensor& counts, int64_t capacity) {
  const at::Tensor starts = at::cumsum(counts, 0).sub(counts);
  const at::Tensor place = at::arange(sorted.order.size(0), at::kLong).sub(starts.index_select(0, sorted.experts));
  return sorted.experts.mul(capacity).add(place).masked_fill(place.ge(capacity), -1);
}

namespace {

// Modes of quantisation.
constexpr int64_t kUnquantized = -1;
constexpr int64_t kStaticScale = 0;
constexpr int64_t kDynamicScale = 1;

// How MoeInitRoutingV3 and MoeInitRoutingQuantV2 fill their expanded rows.
struct Expansion {
  Tensor x, expert_idx;
  OptionalTensor scale, offset;
  int64_t mode;
  int64_t begin, end;       // the experts that take part
  bool pads;                // every expert has `capacity` rows
  int64_t capacity;
  Tensor expanded;          // [rows, H] or [experts, capacity, H]
  OptionalTensor expanded_scale;

  void Require() const;
  // Source choice of each row of `expanded`, and the row of each choice (-1 where it has none).
  struct Rows {
    at::Tensor choices, slots;
  };
  Rows Assign(const SortedChoices& sorted, const at::Tensor& counts) const;
  void Fill(const Rows& rows) const;
  int64_t choices() const { return expert_idx.numel(); }
};

void Expansion::Require() const {
  RequireRank(x, 2, 2);
  RequireDtype(x, kFloats | DtypeSet{ScalarType::Char});
  RequireDtype(expert_idx, {ScalarType::Int});
  RequireRank(expert_idx, 2, 2);
  if (expert_idx.size(0) != x.size(0)) {
    RefuseArgument(expert_idx.name(), std::to_string(x.size(0)) + " rows as 'x'", Describe(expert_idx.sizes()));
  }
  if (mode == kUnquantized) {
    RequireSameDtype(expanded, x);
  } else {
    RequireDtype(x, kFloats);
    RequireDtype(expanded, {ScalarType::Char});
  }
  if (pads) {
    RequireShape(expanded, {end, capacity, x.size(1)});
  } else {
    RequireRank(expanded, 2, 2);
    if (expanded.size(1) != x.size(1) || expanded.size(0) > choices()) {
      RefuseArgument(expanded.name(), "[at most " + std::to_string(choices()) + ", " + std::to_string(x.size(1)) + "]",
                     Describe(expanded.sizes()));
    }
  }
  if (scale) {
    RequireDtype(*scale, {ScalarType::Float});
  }
  if (mode == kStaticScale) {
    if (!scale || !offset) {
      RefuseArgument(scale ? offset.name() : scale.name(), "a tensor in the static mode", "none");
    }
    RequireDtype(*offset, {ScalarType::Float});
  }
  if (mode == kDynamicScale && scale &&
      (scale->rank() != 2 || scale->size(1) != x.size(1) || (scale->size(0) != 1 && scale->size(0) != end - begin))) {
    RefuseArgument(scale.name(), "shape [1 or " + std::to_string(end - begin) + ", " + std::to_string(x.size(1)) + "]",
                   Describe(scale->sizes()));
  }
  if (mode == kUnquantized && scale) {
    RequireShape(*scale, {x.size(0)});
  }
}

Expansion::Rows Expansion::Assign(const SortedChoices& sorted, const at::Tensor& counts) const {
  const int64_t count = sorted.order.size(0);
  at::Tensor slots = at::full({choices()}, -1, at::kLong);
  if (!pads) {
    slots.index_copy_(0, sorted.order, at::arange(count, at::kLong));
    return {sorted.order.narrow(0, 0, std::min(count, expanded.size(0))), slots};
  }
  slots.index_copy_(0, sorted.order, SlotsWithCapacity(sorted, counts, capacity));
  at::Tensor choice_of_row = at::full({end * capacity}, -1, at::kLong);
  const at::Tensor kept = at::nonzero(slots.ge(0)).squeeze(-1);
  choice_of_row.index_copy_(0, slots.index_select(0, kept), kept);
  return {choice_of_row, slots};
}

void Expansion::Fill(const Rows& rows) const {
  const int64_t width = x.size(1);
  const at::Tensor given = at::nonzero(rows.choices.ge(0)).squeeze(-1);
  const at::Tensor choices_given = rows.choices.index_select(0, given);
  const at::Tensor sources = choices_given.div(expert_idx.size(1), "floor");
  const at::Tensor target = at::Tensor(expanded).view({-1, width});
  const at::Tensor scales = expanded_scale ? at::Tensor(*expanded_scale) : at::Tensor();
  if (pads) {
    target.zero_();
    if (scales.defined()) {
      scales.zero_();
    }
  }
  if (mode == kUnquantized) {
    target.index_copy_(0, given, at::index_select(at::Tensor(x), 0, sources));
    if (scale && scales.defined()) {
      scales.index_copy_(0, given, at::index_select(at::Tensor(*scale), 0, sources));
    }
    return;
  }
  at::Tensor values = at::index_select(x.Widened(), 0, sources);
  if (mode == kStaticScale) {
    // The device rounds to float16 before it rounds to integers.
    const at::Tensor moved = values.mul(at::Tensor(*scale).reshape({-1})[0]).add(at::Tensor(*offset).reshape({-1})[0]);
    values = moved.to(at::kHalf).to(at::kDouble);
  } else {
    if (scale && scale->size(0) == 1) {
      values = values.mul(at::Tensor(*scale));
    } else if (scale) {
      const at::Tensor experts = at::Tensor(expert_idx).reshape({-1}).to(at::kLong).index_select(0, choices_given);
      values = values.mul(at::Tensor(*scale).index_select(0, experts.sub(begin)));
    }
    if (values.numel() == 0) {
      return;
    }
    const at::Tensor step = at::amax(at::abs(values), {-1}, true).div(127.0);
    if (scales.defined()) {
      scales.index_copy_(0, given, step.squeeze(-1));
    }
    values = at::div(values, step).to(at::kDouble);
  }
  target.index_copy_(0, given, values.nan_to_num(0.0).round().clamp(-128, 127).to(at::kChar));
}

void RequireMode(const Int& mode, std::initializer_list<int64_t> known, const char* names) {
  if (std::find(known.begin(), known.end(), mode.value()) == known.end()) {
    RefuseArgument(mode.name(), names, std::to_string(mode));
  }
}

void RequireChoiceVector(const Tensor& tensor, int64_t count) {
  RequireDtype(tensor, {ScalarType::Int});
  RequireShape(tensor, {count});
}

}  // namespace

// The rows of x in the order of their experts. row_idx numbers the choices column by column.
CANN_SIM_OPERATOR(aclnnMoeInitRouting, (Tensor, x), (Tensor, rowIdx), (Tensor, expertIdx), (Int, activeNum),
                  (Tensor, expandedXOut), (Tensor, expandedRowIdxOut), (Tensor, expandedExpertIdxOut)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, 2);
  RequireDtype(expertIdx, {ScalarType::Int});
  RequireRank(expertIdx, 2, 2);
  RequireDtype(rowIdx, {ScalarType::Int});
  RequireShape(rowIdx, expertIdx.sizes());
  if (expertIdx.size(0) != x.size(0)) {
    RefuseArgument(expertIdx.name(), std::to_string(x.size(0)) + " rows as 'x'", Describe(expertIdx.sizes()));
  }
  const int64_t rows = std::min<int64_t>(activeNum, x.size(0)) * expertIdx.size(1);
  RequireSameDtype(expandedXOut, x);
  RequireShape(expandedXOut, {rows, x.size(1)});
  RequireChoiceVector(expandedRowIdxOut, expertIdx.numel());
  RequireChoiceVector(expandedExpertIdxOut, expertIdx.numel());
  return [=] {
    const auto [experts, order] = at::sort(at::Tensor(expertIdx).reshape({-1}), /*stable=*/true, 0, false);
    const at::Tensor sources = at::Tensor(rowIdx).reshape({-1}).to(at::kLong).index_select(0, order);
    expandedXOut.Store(at::index_select(at::Tensor(x), 0, sources.narrow(0, 0, rows).remainder(x.size(0))));
    at::Tensor(expandedRowIdxOut).index_copy_(0, sources, at::arange(sources.size(0), at::kInt));
    expandedExpertIdxOut.Store(experts);
  };
}

// Rows of x in the order of their experts, as they are (quantMode -1) or as int8 with given (0) or own (1) scales. Rows after
// the last choice of an active expert are left as they are.
CANN_SIM_OPERATOR(aclnnMoeInitRoutingV3, (Tensor, x), (Tensor, expertIdx), (OptionalTensor, scale),
                  (OptionalTensor, offset), (Int, activeNum), (Int, expertCapacity), (Int, expertNum), (Int, dropPadMode),
                  (Int, expertTokensNumType), (Bool, expertTokensNumFlag), (Int, quantMode),
                  (OptionalIntArray, activeExpertRange), (Int, rowIdxType), (Tensor, expandedXOut),
                  (Tensor, expandedRowIdxOut), (OptionalTensor, expertTokensCountOrCumsumOut),
                  (OptionalTensor, expandedScaleOut)) {
  RequireMode(quantMode, {kUnquantized, kStaticScale, kDynamicScale}, "-1 (none), 0 (static) or 1 (dynamic)");
  RequireMode(dropPadMode, {0, 1}, "0 (dropless) or 1 (drop and pad)");
  RequireMode(expertTokensNumType, {0, 1, 2}, "0 (running totals), 1 (counts) or 2 (expert and count)");
  RequireMode(rowIdxType, {0, 1}, "0 (gather) or 1 (scatter)");
  if (expertNum <= 0 || expertNum > 10240) {
    RefuseArgument(expertNum.name(), "1 to 10240", std::to_string(expertNum));
  }
  std::vector<int64_t> range = activeExpertRange ? activeExpertRange.values() : std::vector<int64_t>{};
  if (range.empty()) {
    range = {0, expertNum};
  }
  if (range.size() != 2 || range[0] < 0 || range[1] <= range[0] || range[1] > expertNum) {
    RefuseArgument(activeExpertRange.name(), "[begin, end) within the " + std::to_string(expertNum) + " experts",
                   Describe(range));
  }
  const bool pads = dropPadMode == 1;
  if (pads && (range[0] != 0 || range[1] != expertNum || rowIdxType != 0 || expertCapacity <= 0)) {
    RefuseArgument(dropPadMode.name(), "all experts, rowIdxType 0 and a capacity beside 1", "others");
  }
  const Expansion expansion{x,     expertIdx, scale, offset,       quantMode,    range[0],
                            range[1], pads,   expertCapacity, expandedXOut, expandedScaleOut};
  expansion.Require();
  RequireChoiceVector(expandedRowIdxOut, expertIdx.numel());
  const bool wants_counts = expertTokensNumFlag && expertTokensCountOrCumsumOut;
  const int64_t active = range[1] - range[0];
  if (wants_counts) {
    RequireDtype(*expertTokensCountOrCumsumOut, {ScalarType::Long});
    if (expertTokensNumType == 2) {
      RequireShape(*expertTokensCountOrCumsumOut, {expertNum, 2});
    } else {
      RequireShape(*expertTokensCountOrCumsumOut, {active});
    }
  }
  return [=] {
    const SortedChoices sorted = SortChoices(expertIdx, range[0], range[1]);
    const at::Tensor counts = CountChoices(sorted, range[0], range[1]);
    const Expansion::Rows rows = expansion.Assign(sorted, counts);
    expansion.Fill(rows);
    if (rowIdxType == 0) {
      expandedRowIdxOut.Store(rows.slots);
    } else {
      expandedRowIdxOut.Store(at::cat({sorted.order, sorted.others}));
    }
    if (!wants_counts) {
      return;
    }
    if (expertTokensNumType == 2) {
      const at::Tensor used = at::nonzero(counts).squeeze(-1);
      const at::Tensor table = *expertTokensCountOrCumsumOut;
      table.zero_();
      table.narrow(0, 0, used.size(0)).copy_(at::stack({used.add(range[0]), counts.index_select(0, used)}, 1));
    } else {
      expertTokensCountOrCumsumOut->Store(expertTokensNumType == 0 ? at::cumsum(counts, 0) : counts);
    }
  };
}

namespace {

// The older routing, whose counts are int32: running totals (flag 1) or counts (flag 2) where nothing is padded, counts before
// the capacity was applied where it is.
Plan RouteToAll(const Expansion& expansion, const Tensor& row_idx, int64_t count_mode, const OptionalTensor& totals,
                const OptionalTensor& before_capacity) {
  expansion.Require();
  RequireChoiceVector(row_idx, expansion.choices());
  for (const OptionalTensor& tensor : {totals, before_capacity}) {
    if (tensor && tensor->numel() != 0) {
      RequireShape(*tensor, {expansion.end});
    }
  }
  return [=] {
    const SortedChoices sorted = SortChoices(expansion.expert_idx, 0, expansion.end);
    const at::Tensor counts = CountChoices(sorted, 0, expansion.end);
    const Expansion::Rows rows = expansion.Assign(sorted, counts);
    expansion.Fill(rows);
    row_idx.Store(rows.slots);
    if (totals && totals->numel() != 0 && count_mode > 0 && !expansion.pads) {
      totals->Store(count_mode == 1 ? at::cumsum(counts, 0) : counts);
    }
    if (before_capacity && before_capacity->numel() != 0 && expansion.pads) {
      before_capacity->Store(counts);
    }
  };
}

void RequireCapacity(const Int& pad_mode, const Int& capacity, const Int& experts) {
  RequireMode(pad_mode, {0, 1}, "0 (dropless) or 1 (drop and pad)");
  if (pad_mode == 1 && (capacity <= 0 || experts <= 0)) {
    RefuseArgument(capacity.name(), "a capacity and a number of experts beside dropPadMode 1", std::to_string(capacity));
  }
}

}  // namespace

CANN_SIM_OPERATOR(aclnnMoeInitRoutingV2, (Tensor, x), (Tensor, expertIdx), (Int, activeNum), (Int, expertCapacity),
                  (Int, expertNum), (Int, dropPadMode), (Int, expertTokensCountOrCumsumFlag),
                  (Bool, expertTokensBeforeCapacityFlag), (Tensor, expandedXOut), (Tensor, expandedRowIdxOut),
                  (OptionalTensor, expertTokensCountOrCumsumOut), (OptionalTensor, expertTokensBeforeCapacityOut)) {
  RequireCapacity(dropPadMode, expertCapacity, expertNum);
  return RouteToAll({x, expertIdx, OptionalTensor(), OptionalTensor(), kUnquantized, 0, expertNum, dropPadMode == 1, expertCapacity,
                     expandedXOut, OptionalTensor()},
                    expandedRowIdxOut, expertTokensCountOrCumsumFlag, expertTokensCountOrCumsumOut,
                    expertTokensBeforeCapacityFlag ? expertTokensBeforeCapacityOut : OptionalTensor());
}

CANN_SIM_OPERATOR(aclnnMoeInitRoutingQuantV2, (Tensor, x), (Tensor, expertIdx), (OptionalTensor, scale),
                  (OptionalTensor, offset), (Int, activeNum), (Int, expertCapacity), (Int, expertNum), (Int, dropPadMode),
                  (Int, expertTokensCountOrCumsumFlag), (Bool, expertTokensBeforeCapacityFlag), (Int, quantMode),
                  (Tensor, expandedXOut), (Tensor, expandedRowIdxOut), (OptionalTensor, expertTokensCountOrCumsumOut),
                  (OptionalTensor, expertTokensBeforeCapacityOut), (OptionalTensor, dynamicQuantScaleOut)) {
  RequireMode(quantMode, {kStaticScale, kDynamicScale}, "0 (static) or 1 (dynamic)");
  RequireCapacity(dropPadMode, expertCapacity, expertNum);
  return RouteToAll({x, expertIdx, scale, offset, quantMode, 0, expertNum, dropPadMode == 1, expertCapacity, expandedXOut,
                     dynamicQuantScaleOut},
                    expandedRowIdxOut, expertTokensCountOrCumsumFlag, expertTokensCountOrCumsumOut,
                    expertTokensBeforeCapacityFlag ? expertTokensBeforeCapacityOut : OptionalTensor());
}

// out[e] = number of sorted experts that are at most e.
CANN_SIM_OPERATOR(aclnnMoeComputeExpertTokens, (Tensor, sortedExperts), (Int, numExperts), (Tensor, out)) {
  RequireDtype(sortedExperts, {ScalarType::Int});
  RequireRank(sortedExperts, 1, 1);
  RequireDtype(out, {ScalarType::Int});
  RequireShape(out, {numExperts.value()});
  return [=] {
    out.Store(at::cumsum(CountChoices(SortChoices(sortedExperts, 0, numExperts), 0, numExperts), 0));
  };
}

// Rows grouped by rank, each by expert, become rows grouped by expert, each by rank.
CANN_SIM_OPERATOR(aclnnMoeReRouting, (Tensor, tokens), (Tensor, expertTokenNumPerRank), (OptionalTensor, perTokenScales),
                  (Int, expertTokenNumType), (Int, idxType), (Tensor, permuteTokens),
                  (OptionalTensor, permutePerTokenScales), (Tensor, permuteTokenIdx), (Tensor, expertTokenNum)) {
  RequireDtype(tokens, kHalves | DtypeSet{ScalarType::Char});
  RequireRank(tokens, 2, 2);
  RequireDtype(expertTokenNumPerRank, kIndices);
  RequireRank(expertTokenNumPerRank, 2, 2);
  RequireMode(expertTokenNumType, {1}, "1 (counts)");
  RequireMode(idxType, {0}, "0 (gather)");
  RequireSameDtype(permuteTokens, tokens);
  RequireShape(permuteTokens, tokens.sizes());
  RequireDtype(permuteTokenIdx, {ScalarType::Int});
  RequireShape(permuteTokenIdx, {tokens.size(0)});
  RequireSameDtype(expertTokenNum, expertTokenNumPerRank);
  RequireShape(expertTokenNum, {expertTokenNumPerRank.size(1)});
  if (perTokenScales) {
    RequireDtype(*perTokenScales, {ScalarType::Float});
    RequireShape(*perTokenScales, {tokens.size(0)});
  }
  return [=] {
    const at::Tensor counts = at::Tensor(expertTokenNumPerRank).to(at::kLong);
    const at::Tensor starts = at::cumsum(counts.reshape({-1}), 0).view(counts.sizes()).sub(counts);
    std::vector<at::Tensor> parts{at::arange(0, at::kLong)};
    for (int64_t expert = 0; expert < counts.size(1); ++expert) {
      for (int64_t rank = 0; rank < counts.size(0); ++rank) {
        const int64_t start = starts[rank][expert].item<int64_t>();
        parts.push_back(at::arange(start, start + counts[rank][expert].item<int64_t>(), at::kLong));
      }
    }
    // op-plugin's test counts more rows than there are; those are left out.
    const at::Tensor listed = at::cat(parts);
    const at::Tensor all = at::masked_select(listed, listed.lt(tokens.size(0)));
    at::Tensor(permuteTokens).narrow(0, 0, all.size(0)).copy_(at::index_select(at::Tensor(tokens), 0, all));
    at::Tensor(permuteTokenIdx).narrow(0, 0, all.size(0)).copy_(all);
    if (perTokenScales && permutePerTokenScales) {
      at::Tensor(*permutePerTokenScales).narrow(0, 0, all.size(0)).copy_(at::Tensor(*perTokenScales).index_select(0, all));
    }
    expertTokenNum.Store(counts.sum({0}));
  };
}

}  // namespace cann_sim::operators
