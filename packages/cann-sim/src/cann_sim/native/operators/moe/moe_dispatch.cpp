// MoeDistributeDispatch: every device sends its tokens to the devices of their experts. Received rows are sorted by expert,
// then by sending device, then by token.

#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "moe_distribute.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kPlain = 0;
constexpr int64_t kDynamic = 2;
constexpr int64_t kLargestWidth = 10240;

// One call; owned by its kernel.
struct MoeDispatch {
  Tensor x, expert_ids;
  OptionalTensor scales, active_mask, expert_scales;
  ExpertGroup group;
  int64_t quant_mode, counts_type;
  Tensor expand_x, dynamic_scales, assist, expert_counts, receive_counts, expand_scales;
  bool assist_by_row;

  void Require() const;
  void Run() const;

 private:
  // Rows of int32 hold eight int4 each, with a scale that travels with them.
  bool packed() const { return x.dtype() == ScalarType::Int; }
  void RequireScales() const;
  void RequireResults() const;
  std::vector<at::Tensor> Sent() const;
  void StoreRows(const at::Tensor& rows, const at::Tensor& experts, const at::Tensor& row_scales) const;
};

void MoeDispatch::RequireScales() const {
  if (quant_mode != kPlain && (quant_mode != kDynamic || packed())) {
    RefuseArgument("quantMode", packed() ? "0 for rows of int4" : "0 (none) or 2 (dynamic)", std::to_string(quant_mode));
  }
  if (packed() != static_cast<bool>(scales) && (packed() || quant_mode == kPlain)) {
    RefuseArgument(scales.name(), packed() ? "a scale for each token, since they are int4" : "none without quantisation",
                   packed() ? "none" : "a tensor");
  }
  if (scales) {
    RequireDtype(*scales, {ScalarType::Float});
    RequireContiguous(*scales);
    RequireShape(*scales, packed() ? std::vector<int64_t>{x.size(0)} : std::vector<int64_t>{group.experts, x.size(1)});
  }
  if (expert_scales) {
    RequireDtype(*expert_scales, {ScalarType::Float});
    RequireShape(*expert_scales, expert_ids.sizes());
  }
}

void MoeDispatch::RequireResults() const {
  const int64_t least = group.most_tokens * group.ranks.size * std::min(group.local(), expert_ids.size(1));
  RequireDtype(expand_x, {quant_mode == kDynamic ? ScalarType::Char : x.dtype()});
  RequireRank(expand_x, 2, 2);
  if (expand_x.size(0) < least || expand_x.size(1) != x.size(1)) {
    RefuseArgument(expand_x.name(), "at least " + Describe({least, x.size(1)}), Describe(expand_x.sizes()));
  }
  const int64_t rows = expand_x.size(0);
  if (quant_mode == kDynamic || packed()) {
    RequireDtype(dynamic_scales, {ScalarType::Float});
    RequireShape(dynamic_scales, {rows});
  }
  RequireDtype(assist, {ScalarType::Int});
  RequireShape(assist, {assist_by_row ? rows * 128 : expert_ids.numel()});
  RequireDtype(expert_counts, {ScalarType::Long});
  RequireShape(expert_counts, {group.local()});
  if (counts_type != 0 && counts_type != 1) {
    RefuseArgument("expertTokenNumsType", "0 (totals) or 1 (counts)", std::to_string(counts_type));
  }
  RequireDtype(receive_counts, {ScalarType::Int});
  RequireRank(receive_counts, 1, 1);
  if (receive_counts.size(0) < group.experts) {
    RefuseArgument(receive_counts.name(), "at least " + std::to_string(group.experts) + " elements",
                   Describe(receive_counts.sizes()));
  }
  if (expert_scales) {
    RequireDtype(expand_scales, {ScalarType::Float});
    RequireShape(expand_scales, {rows});
  }
}

void MoeDispatch::Require() const {
  RequireDtype(x, kHalves | DtypeSet{ScalarType::Int});
  RequireRank(x, 2, 2);
  if (x.size(0) != expert_ids.size(0) || x.size(1) < 1 || x.size(1) > kLargestWidth || x.size(1) % 32 != 0) {
    RefuseArgument(x.name(), "[" + std::to_string(expert_ids.size(0)) + ", a multiple of 32 up to 10240]", Describe(x.sizes()));
  }
  RequireChoices(expert_ids, active_mask, group);
  RequireScales();
  RequireResults();
}

// Copies of the rows, where they go to (token, position, expert, number, a row each), and what goes with them.
std::vector<at::Tensor> MoeDispatch::Sent() const {
  std::vector<int64_t> flat;
  for (const Choice& choice : ActiveChoices(expert_ids, active_mask, group)) {
    flat.insert(flat.end(), {choice.token, choice.position, choice.expert, choice.number});
  }
  const at::Tensor choices = at::tensor(flat, at::kLong).view({-1, 4});
  return {at::Tensor(x).clone(), choices, packed() ? at::Tensor(*scales).clone() : at::Tensor(),
          expert_scales ? at::Tensor(*expert_scales).clone() : at::Tensor()};
}

void MoeDispatch::StoreRows(const at::Tensor& rows, const at::Tensor& experts, const at::Tensor& row_scales) const {
  const int64_t count = rows.size(0);
  const at::Tensor stored = at::Tensor(expand_x).narrow(0, 0, count);
  if (quant_mode == kPlain) {
    stored.copy_(rows);
    if (packed()) {
      at::Tensor(dynamic_scales).narrow(0, 0, count).copy_(row_scales);
    }
    return;
  }
  at::Tensor wide = rows.to(at::kFloat);
  if (scales) {
    wide = at::mul(wide, at::index_select(scales->Widened(), 0, experts));
  }
  if (count > 0) {
    const ScaledRows scaled = ScaleRows(wide, 127);
    stored.copy_(scaled.values.nan_to_num(0.0).round().clamp(-128, 127));
    at::Tensor(dynamic_scales).narrow(0, 0, count).copy_(scaled.scale);
  }
}

void MoeDispatch::Run() const {
  const std::vector<std::vector<at::Tensor>> received = Exchange(group.ranks, Sent());
  const int64_t first = group.ranks.rank * group.local();
  std::vector<at::Tensor> rows, row_scales, weights;
  std::vector<int64_t> origins, experts, totals, counts(static_cast<size_t>(group.local()));
  for (int64_t local = 0; local < group.local(); ++local) {
    for (size_t rank = 0; rank < received.size(); ++rank) {
      const std::vector<at::Tensor>& part = received[rank];
      const at::Tensor own = part[1].index_select(0, part[1].select(1, 2).eq(first + local).nonzero().view({-1}));
      const at::Tensor tokens = own.select(1, 0);
      rows.push_back(part[0].index_select(0, tokens));
      if (packed()) {
        row_scales.push_back(part[2].index_select(0, tokens));
      }
      if (expert_scales) {
        weights.push_back(part[3].reshape({-1}).index_select(0, tokens.mul(part[3].size(1)).add(own.select(1, 1))));
      }
      for (int64_t row = 0; row < own.size(0); ++row) {
        origins.insert(origins.end(), {static_cast<int64_t>(rank), own[row][0].item<int64_t>(), own[row][1].item<int64_t>()});
        experts.push_back(first + local);
      }
      counts[static_cast<size_t>(local)] += own.size(0);
      totals.push_back(static_cast<int64_t>(experts.size()));
    }
  }
  StoreRows(at::cat(rows), at::tensor(experts, at::kLong), packed() ? at::cat(row_scales) : at::Tensor());
  const auto count = static_cast<int64_t>(experts.size());
  if (expert_scales) {
    at::Tensor(expand_scales).narrow(0, 0, count).copy_(at::cat(weights));
  }
  const at::Tensor numbers = at::tensor(counts, at::kLong);
  expert_counts.Store(counts_type == 0 ? at::cumsum(numbers, 0) : numbers);
  at::Tensor(receive_counts).narrow(0, 0, group.experts).copy_(at::tensor(totals, at::kLong));
  if (assist_by_row) {
    at::Tensor(assist).view({-1, 128}).narrow(0, 0, count).narrow(1, 0, 3).copy_(at::tensor(origins, at::kLong).view({-1, 3}));
    return;
  }
  const at::Tensor own = at::zeros({expert_ids.numel()}, at::kLong);
  for (const Choice& choice : ActiveChoices(expert_ids, active_mask, group)) {
    own[choice.token * expert_ids.size(1) + choice.position] = choice.number;
  }
  assist.Store(own);
}

Plan PlanDispatch(const MoeDispatch& given) {
  given.Require();
  const auto call = std::make_shared<MoeDispatch>(given);
  return Plan([call] { call->Run(); });
}

}  // namespace

#define CANN_SIM_DISPATCH_TENSORS                                                                              \
  (Tensor, x), (Tensor, expertIds), (OptionalTensor, scales), (OptionalTensor, xActiveMask), (OptionalTensor, expertScales)

#define CANN_SIM_DISPATCH_ATTRIBUTES                                                                           \
  (Text, groupEp), (Int, epWorldSize), (Int, epRankId), (Int, moeExpertNum), (OptionalText, groupTp),          \
      (Int, tpWorldSize), (Int, tpRankId), (Int, expertShardType), (Int, sharedExpertNum),                     \
      (Int, sharedExpertRankNum), (Int, quantMode), (Int, globalBs), (Int, expertTokenNumsType)

#define CANN_SIM_DISPATCH_RESULTS                                                                              \
  (Tensor, expandXOut), (Tensor, dynamicScalesOut), (Tensor, assistInfoForCombineOut), (Tensor, expertTokenNumsOut), \
      (Tensor, epRecvCountsOut), (OptionalTensor, tpRecvCountsOut), (Tensor, expandScalesOut)

#define CANN_SIM_DISPATCH_PLAN(ASSIST_BY_ROW)                                                                  \
  RequireRank(expertIds, 2, 2);                                                                                \
  return PlanDispatch({x, expertIds, scales, xActiveMask, expertScales,                                            \
                   MakeExpertGroup({groupEp, epWorldSize, epRankId, moeExpertNum, tpWorldSize, tpRankId,       \
                                    expertShardType, sharedExpertNum, sharedExpertRankNum, globalBs},          \
                                   expertIds.size(0)),                                                         \
                   quantMode, expertTokenNumsType, expandXOut, dynamicScalesOut, assistInfoForCombineOut,      \
                   expertTokenNumsOut, epRecvCountsOut, expandScalesOut, ASSIST_BY_ROW})

CANN_SIM_OPERATOR(aclnnMoeDistributeDispatch, CANN_SIM_DISPATCH_TENSORS, CANN_SIM_DISPATCH_ATTRIBUTES,
                  CANN_SIM_DISPATCH_RESULTS) {
  CANN_SIM_DISPATCH_PLAN(false);
}

CANN_SIM_OPERATOR(aclnnMoeDistributeDispatchV2, CANN_SIM_DISPATCH_TENSORS, CANN_SIM_DISPATCH_ATTRIBUTES, (OptionalText, commAlg),
                  CANN_SIM_DISPATCH_RESULTS) {
  RequireAlgorithm(commAlg);
  CANN_SIM_DISPATCH_PLAN(true);
}

CANN_SIM_OPERATOR(aclnnMoeDistributeDispatchV3, CANN_SIM_DISPATCH_TENSORS, (OptionalTensor, elasticInfo),
                  CANN_SIM_DISPATCH_ATTRIBUTES, (OptionalText, commAlg), (Int, zeroExpertNum), (Int, copyExpertNum),
                  (Int, constExpertNum), CANN_SIM_DISPATCH_RESULTS) {
  RequireAlgorithm(commAlg);
  RequireNoSpecialExperts(zeroExpertNum, copyExpertNum, constExpertNum, {&elasticInfo});
  CANN_SIM_DISPATCH_PLAN(true);
}

CANN_SIM_OPERATOR(aclnnMoeDistributeDispatchV4, CANN_SIM_DISPATCH_TENSORS, (OptionalTensor, elasticInfo),
                  (OptionalTensor, performanceInfo), CANN_SIM_DISPATCH_ATTRIBUTES, (OptionalText, commAlg), (Int, zeroExpertNum),
                  (Int, copyExpertNum), (Int, constExpertNum), CANN_SIM_DISPATCH_RESULTS) {
  RequireAlgorithm(commAlg);
  RequireNoSpecialExperts(zeroExpertNum, copyExpertNum, constExpertNum, {&elasticInfo, &performanceInfo});
  CANN_SIM_DISPATCH_PLAN(true);
}

}  // namespace cann_sim::operators
