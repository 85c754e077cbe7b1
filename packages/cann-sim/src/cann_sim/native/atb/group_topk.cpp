// Choice of experts by groups.

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>

#include <limits>

#include "operation.h"
#include "operations.h"

namespace cann_sim::atb_library {

using operators::Bool;
using operators::Float;
using operators::Int;
using operators::Int32;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

namespace {

constexpr int32_t kSigmoid = 8;

void RequireGroups(const Tensor& scores, int64_t groups, int64_t kept, int64_t counted) {
  operators::RequireRank(scores, 2, 2);
  const int64_t experts = scores.size(1);
  if (groups < 1 || experts % groups != 0) {
    RefuseArgument("group_num", "a divisor of the " + std::to_string(experts) + " experts", std::to_string(groups));
  }
  if (kept < 1 || kept > groups) {
    RefuseArgument("k", "1 to " + std::to_string(groups) + ", the number of groups", std::to_string(kept));
  }
  if (counted < 1 || counted > experts / groups) {
    RefuseArgument("n", "1 to " + std::to_string(experts / groups) + ", the experts of a group", std::to_string(counted));
  }
}

// True for the experts [tokens, experts] outside the `kept` groups whose `counted` largest scores have the largest sums. Of equal
// groups the first are kept.
at::Tensor LeftOut(const at::Tensor& scores, int64_t groups, int64_t kept, int64_t counted) {
  const at::Tensor grouped = scores.unflatten(1, {groups, -1});
  const at::Tensor sums = std::get<0>(grouped.topk(counted, -1)).sum(-1);
  const at::Tensor best = std::get<1>(sums.sort(/*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, kept);
  const at::Tensor left_out = at::ones_like(sums, at::kBool).scatter_(1, best, false);
  return left_out.unsqueeze(-1).expand(grouped.sizes()).flatten(1, 2);
}

}  // namespace

operators::Plan MakePlan(const atb::infer::GroupTopkParam& parameters, const Arguments& tensors) {
  tensors.RequireCounts(2, 1);
  const Tensor scores = tensors.Input(0, "self");
  const Tensor out = tensors.Output(0, "self");
  operators::RequireDtype(scores, operators::kHalves);
  operators::RequireSameDtype(out, scores);
  operators::RequireShape(out, scores.sizes());
  const int64_t counted = parameters.groupMultiFlag == 1 ? parameters.n : 1;
  RequireGroups(scores, parameters.groupNum, parameters.k, counted);
  return [=, groups = parameters.groupNum, kept = parameters.k] {
    const at::Tensor wide = scores.Widened();
    out.Store(wide.masked_fill(LeftOut(wide, groups, kept, counted), 0.0));
  };
}

CANN_SIM_ATB_FUNCTION(AtbFusedAddTopkDiv, (Tensor, x), (Tensor, add_num), (OptionalTensor, mapping_num),
                      (OptionalTensor, mapping_table), (Int, group_num), (Int, group_topk), (Int, n), (Int, k),
                      (Int32, activation_type), (Bool, is_norm), (Float, scale), (Bool, enable_expert_mapping), (Tensor, y),
                      (Tensor, indices)) {
  operators::RefuseIfPresent(mapping_num, "a mapping of experts");
  operators::RefuseIfPresent(mapping_table, "a mapping of experts");
  if (enable_expert_mapping || activation_type != kSigmoid) {
    RefuseArgument(activation_type.name(), "activation_sigmoid and no mapping of experts (others are not simulated)",
                   std::to_string(activation_type));
  }
  operators::RequireDtype(x, operators::kFloats);
  operators::RequireSameDtype(add_num, x);
  RequireGroups(x, group_num, group_topk, n);
  operators::RequireShape(add_num, {x.size(1)});
  if (k < 1 || k > group_topk * (x.size(1) / group_num)) {
    RefuseArgument(k.name(), "1 to the experts of the chosen groups", std::to_string(k));
  }
  operators::RequireDtype(y, {c10::ScalarType::Float});
  operators::RequireDtype(indices, {c10::ScalarType::Int});
  operators::RequireShape(y, {x.size(0), k});
  operators::RequireShape(indices, y.sizes());
  return [=] {
    const at::Tensor weights = x.Widened().sigmoid();
    const at::Tensor biased = weights.add(add_num.Widened());
    const at::Tensor chosen = biased.masked_fill(LeftOut(biased, group_num, group_topk, n),
                                                 -std::numeric_limits<float>::infinity());
    const at::Tensor experts = std::get<1>(chosen.sort(/*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, k);
    at::Tensor own = weights.gather(1, experts);
    own = is_norm ? own.div(own.sum(1, true)) : own;
    y.Store(own.mul(static_cast<double>(scale)));
    indices.Store(experts);
  };
}

}  // namespace cann_sim::atb_library
