// Choosing the experts of each token. Computed in float32, rounded once; among equal values the lower index wins.

#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kMostGated = 2048;
constexpr int64_t kMostChosen = 1024;
constexpr int64_t kGroupUnit = 32;
constexpr int64_t kSigmoid = 1;

// Indices of the `count` largest values of the last dimension, the largest first.
at::Tensor Largest(const at::Tensor& values, int64_t count) {
  return std::get<1>(at::sort(values, /*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(-1, 0, count);
}

void RequireChoice(const Tensor& x, const OptionalTensor& finished, const Int& k, const Tensor& y, const Tensor& experts) {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, 3);
  if (k <= 0 || k > x.size(-1) || k > kMostChosen) {
    RefuseArgument(k.name(), "1 to " + std::to_string(std::min(x.size(-1), kMostChosen)), std::to_string(k));
  }
  const c10::IntArrayRef rows = x.sizes().slice(0, static_cast<size_t>(x.rank()) - 1);
  std::vector<int64_t> chosen = rows.vec();
  chosen.push_back(k);
  RequireSameDtype(y, x);
  RequireShape(y, chosen);
  RequireDtype(experts, {ScalarType::Int});
  RequireShape(experts, chosen);
  if (finished) {
    RequireDtype(*finished, kBool);
    RequireShape(*finished, rows);
  }
}

// A row that is finished goes to the expert index after the last one.
void StoreExperts(const Tensor& experts, const at::Tensor& chosen, const OptionalTensor& finished, int64_t count) {
  experts.Store(finished ? chosen.masked_fill(at::Tensor(finished).unsqueeze(-1), count) : chosen);
}

// What the two versions of MoeGatingTopK share; `fixed` holds the experts of each row where they are given.
struct GatingTopK {
  Tensor x;
  OptionalTensor bias;
  int64_t k, chosen_groups, groups, group_select_mode, norm_type;
  bool renorm, wants_norm;
  double factor, epsilon;
  Tensor y, experts, norm;

  void Require() const;
  // The experts of each row.
  at::Tensor Choose(const at::Tensor& normalized) const;
  void Run(const at::Tensor& fixed) const;
};

void GatingTopK::Require() const {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, 2);
  const int64_t count = x.size(1);
  if (count > kMostGated) {
    RefuseArgument(x.name(), "at most " + std::to_string(kMostGated) + " experts", std::to_string(count));
  }
  if (bias) {
    RequireSameDtype(*bias, x);
    RequireShape(*bias, {count});
  }
  const int64_t per_group = groups > 0 ? count / groups : 0;
  const bool divides = groups > 0 && count % groups == 0 &&
                       (per_group + kGroupUnit - 1) / kGroupUnit * kGroupUnit * groups <= kMostGated;
  if (!divides || (groups > 1 && per_group <= 2)) {
    RefuseArgument("groupCount",
                   "a divisor of the " + std::to_string(count) + " experts that leaves more than 2 in a group, and at most " +
                       std::to_string(kMostGated) + " with groups filled up to units of 32", std::to_string(groups));
  }
  if (chosen_groups < 1 || chosen_groups > groups) {
    RefuseArgument("kGroup", "1 to " + std::to_string(groups), std::to_string(chosen_groups));
  }
  if (k < 1 || k > per_group * chosen_groups) {
    RefuseArgument("k", "1 to " + std::to_string(per_group * chosen_groups), std::to_string(k));
  }
  if (group_select_mode != 0 && group_select_mode != 1) {
    RefuseArgument("groupSelectMode", "0 (largest) or 1 (sum of the two largest)", std::to_string(group_select_mode));
  }
  if (norm_type != 0 && norm_type != kSigmoid) {
    RefuseArgument("normType", "0 (softmax) or 1 (sigmoid)", std::to_string(norm_type));
  }
  RequireSameDtype(y, x);
  RequireShape(y, {x.size(0), k});
  RequireDtype(experts, {ScalarType::Int});
  RequireShape(experts, {x.size(0), k});
  RequireDtype(norm, {ScalarType::Float});
  RequireShape(norm, x.sizes());
}

at::Tensor GatingTopK::Choose(const at::Tensor& normalized) const {
  at::Tensor values = bias ? at::add(normalized, bias->Widened()) : normalized;
  if (groups > 1 && chosen_groups < groups) {
    const at::Tensor grouped = values.unflatten(-1, {groups, -1});
    const at::Tensor strength =
        group_select_mode == 0 ? at::amax(grouped, {-1}) : std::get<0>(at::topk(grouped, 2, -1)).sum({-1});
    at::Tensor hidden = at::zeros_like(strength, at::TensorOptions().dtype(at::kBool)).fill_(true);
    hidden.scatter_(-1, Largest(strength, chosen_groups), false);
    values = grouped.masked_fill(hidden.unsqueeze(-1), -std::numeric_limits<double>::infinity()).flatten(-2);
  }
  return Largest(values, k);
}

void GatingTopK::Run(const at::Tensor& fixed) const {
  if (x.numel() == 0) {
    return;
  }
  const at::Tensor wide = x.Widened();
  const at::Tensor normalized = norm_type == kSigmoid ? at::sigmoid(wide) : at::softmax(wide, -1);
  const at::Tensor chosen = fixed.defined() ? fixed : Choose(normalized);
  at::Tensor weights = at::gather(normalized, -1, chosen);
  if (norm_type == kSigmoid || renorm) {
    weights = weights.div(weights.sum({-1}, true).add_(epsilon));
  }
  y.Store(weights.mul(factor));
  experts.Store(chosen);
  if (wants_norm) {
    norm.Store(normalized);
  }
}

void RequireNoRenorm(const Int& renorm) {
  if (renorm != 0) {
    RefuseArgument(renorm.name(), "0 (normalise, then choose)", std::to_string(renorm));
  }
}

}  // namespace

// y, expertIdx = the k largest of softmax(x); rowIdx[i, j] = j * rows + i.
CANN_SIM_OPERATOR(aclnnMoeGatingTopKSoftmax, (Tensor, x), (OptionalTensor, finished), (Int, k), (Tensor, yOut),
                  (Tensor, expertIdxOut), (Tensor, rowIdxOut)) {
  RequireChoice(x, finished, k, yOut, expertIdxOut);
  RequireDtype(rowIdxOut, {ScalarType::Int});
  RequireShape(rowIdxOut, yOut.sizes());
  return [=] {
    const at::Tensor weights = at::softmax(x.Widened(), -1);
    const at::Tensor chosen = Largest(weights, k);
    yOut.Store(at::gather(weights, -1, chosen));
    StoreExperts(expertIdxOut, chosen, finished, x.size(-1));
    const int64_t rows = x.numel() / x.size(-1);
    rowIdxOut.Store(at::arange(rows * k, at::kInt).view({k, rows}).transpose(0, 1).reshape(rowIdxOut.sizes()));
  };
}

// renorm 0: the k largest of softmax(x); renorm 1: softmax over the k largest of x.
CANN_SIM_OPERATOR(aclnnMoeGatingTopKSoftmaxV2, (Tensor, x), (OptionalTensor, finished), (Int, k), (Int, renorm),
                  (Bool, outputSoftmax), (Tensor, yOut), (Tensor, expertIdxOut), (OptionalTensor, softmaxOut)) {
  RequireChoice(x, finished, k, yOut, expertIdxOut);
  if (renorm != 0 && renorm != 1) {
    RefuseArgument(renorm.name(), "0 or 1", std::to_string(renorm));
  }
  const bool wants_softmax = outputSoftmax && renorm == 0 && softmaxOut;
  if (wants_softmax) {
    RequireDtype(*softmaxOut, {ScalarType::Float});
    RequireShape(*softmaxOut, x.sizes());
  }
  return [=] {
    const at::Tensor wide = x.Widened();
    const at::Tensor weights = renorm == 0 ? at::softmax(wide, -1) : wide;
    const at::Tensor chosen = Largest(weights, k);
    const at::Tensor own = at::gather(weights, -1, chosen);
    yOut.Store(renorm == 0 ? own : at::softmax(own, -1));
    StoreExperts(expertIdxOut, chosen, finished, x.size(-1));
    if (wants_softmax) {
      softmaxOut->Store(weights);
    }
  };
}

// n = sigmoid or softmax of x. The k largest of n + bias, out of the best groups of experts; y = their n, divided by the sum
// of the row where n is a sigmoid or renorm is 1, times routedScalingFactor.
CANN_SIM_OPERATOR(aclnnMoeGatingTopK, (Tensor, x), (OptionalTensor, bias), (Int, k), (Int, kGroup), (Int, groupCount),
                  (Int, groupSelectMode), (Int, renorm), (Int, normType), (Bool, outFlag), (Double, routedScalingFactor),
                  (Double, eps), (Tensor, yOut), (Tensor, expertIdxOut), (Tensor, outOut)) {
  if (renorm != 0 && renorm != 1) {
    RefuseArgument(renorm.name(), "0 or 1", std::to_string(renorm));
  }
  const GatingTopK gating{x,           bias,    k,                   kGroup, groupCount, groupSelectMode, normType,
                          renorm == 1, outFlag, routedScalingFactor, eps,    yOut,       expertIdxOut,    outOut};
  gating.Require();
  return [gating] { gating.Run(at::Tensor()); };
}

// As MoeGatingTopK, with the experts of a row looked up in tid2eid by the row's token where both are given.
CANN_SIM_OPERATOR(aclnnMoeGatingTopKV2, (Tensor, x), (OptionalTensor, bias), (OptionalTensor, inputIds),
                  (OptionalTensor, tid2eid), (Int, k), (Int, kGroup), (Int, groupCount), (Int, groupSelectMode),
                  (Int, renorm), (Int, normType), (Bool, outFlag), (Double, routedScalingFactor), (Double, eps),
                  (Tensor, yOut), (Tensor, expertIdxOut), (Tensor, outOut)) {
  RequireNoRenorm(renorm);
  const GatingTopK gating{x,     bias,    k,                   kGroup, groupCount, groupSelectMode, normType,
                          false, outFlag, routedScalingFactor, eps,    yOut,       expertIdxOut,    outOut};
  gating.Require();
  if (static_cast<bool>(inputIds) != static_cast<bool>(tid2eid)) {
    RefuseArgument(inputIds ? tid2eid.name() : inputIds.name(), "both of inputIds and tid2eid, or none", "one");
  }
  if (inputIds) {
    RequireDtype(*inputIds, kIndices);
    RequireShape(*inputIds, {x.size(0)});
    RequireDtype(*tid2eid, kIndices);
    RequireRank(*tid2eid, 2, 2);
    RequireShape(*tid2eid, {tid2eid->size(0), k});
  }
  return [=] {
    gating.Run(inputIds ? at::index_select(at::Tensor(tid2eid), 0, at::Tensor(inputIds)).to(at::kLong) : at::Tensor());
  };
}

}  // namespace cann_sim::operators
