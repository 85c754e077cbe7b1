// MoeDistributeCombine: the devices of the experts send the rows back to the devices of their tokens, where they are weighted and
// added up. Sums in float32, rounded once.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "../interface/operator.h"
#include "moe_distribute.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// One call; owned by its kernel.
struct MoeCombine {
  Tensor expand_x, expert_ids, counts, weights;
  OptionalTensor active_mask;
  ExpertGroup group;
  Tensor out;

  void Require() const;
  void Run() const;
};

void MoeCombine::Require() const {
  RequireDtype(expand_x, kHalves);
  RequireRank(expand_x, 2, 2);
  RequireChoices(expert_ids, active_mask, group);
  const int64_t least = group.most_tokens * group.ranks.size * std::min(group.local(), expert_ids.size(1));
  if (expand_x.size(0) < least || expand_x.size(1) % 32 != 0) {
    RefuseArgument(expand_x.name(), "at least " + std::to_string(least) + " rows of a multiple of 32",
                   Describe(expand_x.sizes()));
  }
  RequireDtype(counts, {ScalarType::Int});
  RequireRank(counts, 1, 1);
  if (counts.size(0) < group.experts) {
    RefuseArgument(counts.name(), "at least " + std::to_string(group.experts) + " elements", Describe(counts.sizes()));
  }
  RequireDtype(weights, {ScalarType::Float});
  RequireShape(weights, expert_ids.sizes());
  RequireSameDtype(out, expand_x);
  RequireShape(out, {expert_ids.size(0), expand_x.size(1)});
}

void MoeCombine::Run() const {
  const at::Tensor totals = at::Tensor(counts).narrow(0, 0, group.experts).to(at::kLong).contiguous();
  const int64_t rows = totals[group.experts - 1].item<int64_t>();
  if (rows < 0 || rows > expand_x.size(0)) {
    RefuseArgument(counts.name(), "totals up to " + std::to_string(expand_x.size(0)), std::to_string(rows));
  }
  const std::vector<std::vector<at::Tensor>> received =
      Exchange(group.ranks, {at::Tensor(expand_x).narrow(0, 0, rows).to(at::kFloat, false, true), totals.clone()});
  const at::Tensor factors = weights.Widened();
  const at::Tensor sums = at::zeros(out.sizes(), at::kFloat);
  for (const Choice& choice : ActiveChoices(expert_ids, active_mask, group)) {
    const std::vector<at::Tensor>& owner = received[static_cast<size_t>(choice.expert / group.local())];
    const int64_t place = choice.expert % group.local() * group.ranks.size + group.ranks.rank;
    const int64_t* ends = owner[1].data_ptr<int64_t>();
    const int64_t row = (place == 0 ? 0 : ends[place - 1]) + choice.number;
    if (row >= ends[place]) {
      RefuseArgument(expert_ids.name(), "the experts that the tokens were sent to",
                     "a choice of expert " + std::to_string(choice.expert) + " that it did not receive");
    }
    sums[choice.token].add_(owner[0][row].mul(factors[choice.token][choice.position]));
  }
  out.Store(sums);
}

Plan PlanCombine(const MoeCombine& given) {
  given.Require();
  const auto call = std::make_shared<MoeCombine>(given);
  return Plan([call] { call->Run(); });
}

void RequireZero(const Int& attribute) {
  if (attribute != 0) {
    RefuseArgument(attribute.name(), "0 (others are not simulated)", std::to_string(attribute));
  }
}

}  // namespace

#define CANN_SIM_COMBINE_TENSORS                                                                                  \
  (Tensor, expandX), (Tensor, expertIds), (Tensor, assistInfoForCombine), (Tensor, epSendCounts), (Tensor, expertScales), \
      (OptionalTensor, tpSendCounts), (OptionalTensor, xActiveMask), (OptionalTensor, activationScale),           \
      (OptionalTensor, weightScale), (OptionalTensor, groupList), (OptionalTensor, expandScales)

#define CANN_SIM_COMBINE_ATTRIBUTES                                                                               \
  (Text, groupEp), (Int, epWorldSize), (Int, epRankId), (Int, moeExpertNum), (OptionalText, groupTp),             \
      (Int, tpWorldSize), (Int, tpRankId), (Int, expertShardType), (Int, sharedExpertNum),                        \
      (Int, sharedExpertRankNum), (Int, globalBs), (Int, outDtype), (Int, commQuantMode), (Int, groupListType)

#define CANN_SIM_COMBINE_PLAN                                                                                     \
  for (const OptionalTensor* tensor : {&activationScale, &weightScale, &groupList}) {                             \
    RefuseIfPresent(*tensor, "rows in integers");                                                                 \
  }                                                                                                               \
  RequireZero(outDtype);                                                                                          \
  RequireZero(commQuantMode);                                                                                     \
  RequireZero(groupListType);                                                                                     \
  RequireRank(expertIds, 2, 2);                                                                                   \
  return PlanCombine({expandX, expertIds, epSendCounts, expertScales, xActiveMask,                                   \
                   MakeExpertGroup({groupEp, epWorldSize, epRankId, moeExpertNum, tpWorldSize, tpRankId,          \
                                    expertShardType, sharedExpertNum, sharedExpertRankNum, globalBs},             \
                                   expertIds.size(0)),                                                            \
                   combinedX})

CANN_SIM_OPERATOR(aclnnMoeDistributeCombine, CANN_SIM_COMBINE_TENSORS, CANN_SIM_COMBINE_ATTRIBUTES, (Tensor, combinedX)) {
  CANN_SIM_COMBINE_PLAN;
}

CANN_SIM_OPERATOR(aclnnMoeDistributeCombineV2, CANN_SIM_COMBINE_TENSORS, (OptionalTensor, sharedExpertX),
                  CANN_SIM_COMBINE_ATTRIBUTES, (OptionalText, commAlg), (Tensor, combinedX)) {
  RequireAlgorithm(commAlg);
  RequireNoSpecialExperts(0, 0, 0, {&sharedExpertX});
  CANN_SIM_COMBINE_PLAN;
}

#define CANN_SIM_SPECIAL_EXPERTS                                                                                  \
  (OptionalTensor, sharedExpertX), (OptionalTensor, elasticInfo), (OptionalTensor, oriX), (OptionalTensor, constExpertAlpha1), \
      (OptionalTensor, constExpertAlpha2), (OptionalTensor, constExpertV)

CANN_SIM_OPERATOR(aclnnMoeDistributeCombineV3, CANN_SIM_COMBINE_TENSORS, CANN_SIM_SPECIAL_EXPERTS, CANN_SIM_COMBINE_ATTRIBUTES,
                  (OptionalText, commAlg), (Int, zeroExpertNum), (Int, copyExpertNum), (Int, constExpertNum), (Tensor, combinedX)) {
  RequireAlgorithm(commAlg);
  RequireNoSpecialExperts(zeroExpertNum, copyExpertNum, constExpertNum,
                          {&sharedExpertX, &elasticInfo, &oriX, &constExpertAlpha1, &constExpertAlpha2, &constExpertV});
  CANN_SIM_COMBINE_PLAN;
}

CANN_SIM_OPERATOR(aclnnMoeDistributeCombineV4, CANN_SIM_COMBINE_TENSORS, CANN_SIM_SPECIAL_EXPERTS,
                  (OptionalTensor, performanceInfo), CANN_SIM_COMBINE_ATTRIBUTES, (OptionalText, commAlg), (Int, zeroExpertNum),
                  (Int, copyExpertNum), (Int, constExpertNum), (Tensor, combinedX)) {
  RequireAlgorithm(commAlg);
  RequireNoSpecialExperts(
      zeroExpertNum, copyExpertNum, constExpertNum,
      {&sharedExpertX, &elasticInfo, &oriX, &constExpertAlpha1, &constExpertAlpha2, &constExpertV, &performanceInfo});
  CANN_SIM_COMBINE_PLAN;
}

}  // namespace cann_sim::operators
