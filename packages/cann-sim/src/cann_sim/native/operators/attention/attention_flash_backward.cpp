// The gradient of FlashAttentionScore, from the statistics and the output that the operator left.

#include <ATen/ops/bmm.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "../interface/operator.h"
#include "flash_attention.h"

namespace cann_sim::operators {

namespace {

struct FlashGradients {
  Tensor output_gradient, output, largest, totals;
  Tensor query, key, value;
  OptionalTensor query_rope, key_rope, sink;
};

void Require(const FlashAttention& call, const FlashGradients& gradients) {
  call.Require();
  call.RequireOutput(gradients.output_gradient);
  call.RequireOutput(gradients.output);
  call.RequireStatistic(gradients.largest);
  call.RequireStatistic(gradients.totals);
  const auto like = [](const Tensor& gradient, const Tensor& input) {
    RequireSameDtype(gradient, input);
    RequireShape(gradient, input.sizes());
  };
  like(gradients.query, call.query);
  like(gradients.key, call.key);
  like(gradients.value, call.value);
  const auto like_optional = [&](const OptionalTensor& gradient, const OptionalTensor& input) {
    if (!input) {
      return;
    }
    if (!gradient) {
      RefuseArgument(gradient.name(), std::string("a tensor beside '") + input.name() + "'", "none");
    }
    like(*gradient, *input);
  };
  like_optional(gradients.query_rope, call.query_rope);
  like_optional(gradients.key_rope, call.key_rope);
  like_optional(gradients.sink, call.sink);
}

void RunFlashBackward(const FlashAttention& call, const FlashGradients& gradients) {
  const int64_t heads = call.heads;
  const int64_t groups = call.key_heads();
  const int64_t group = heads / groups;
  const at::Tensor queries = call.Queries();
  const at::Tensor keys = call.Keys();
  const at::Tensor values = call.Canonical(call.value.Widened(), groups);
  const at::Tensor output_gradients = call.Canonical(gradients.output_gradient.Widened(), heads);
  const at::Tensor outputs = call.Canonical(gradients.output.Widened(), heads);
  const at::Tensor largest = gradients.largest.Widened().contiguous();
  const at::Tensor totals = gradients.totals.Widened().contiguous();
  const at::Tensor query_gradients = at::zeros(queries.sizes(), at::kFloat);
  const at::Tensor key_gradients = at::zeros(keys.sizes(), at::kFloat);
  const at::Tensor value_gradients = at::zeros(values.sizes(), at::kFloat);
  const at::Tensor sink_gradients = at::zeros({heads}, at::kFloat);
  for (const FlashSequence& sequence : call.Sequences()) {
    if (sequence.queries == 0 || sequence.keys == 0) {
      continue;
    }
    // [N, S, D] of the queries' side, [N, K, D] of the keys' side.
    const auto of_queries = [&](const at::Tensor& whole) { return call.QueryRows(whole, sequence).transpose(0, 1); };
    const auto of_keys = [&](const at::Tensor& whole) {
      return call.KeyRows(whole, sequence).repeat_interleave(group, 1).transpose(0, 1);
    };
    const at::Tensor own_largest = call.Statistic(largest, sequence);
    const at::Tensor own_totals = call.Statistic(totals, sequence);
    const at::Tensor weights = call.Weights(sequence, call.QueryRows(queries, sequence), call.KeyRows(keys, sequence),
                                            own_largest, own_totals);
    const at::Tensor kept = call.Kept(sequence);
    const at::Tensor output_gradient = of_queries(output_gradients);
    at::Tensor weight_gradient = at::bmm(output_gradient, of_keys(values).transpose(1, 2));
    if (kept.defined()) {
      weight_gradient.mul_(kept);
    }
    const at::Tensor mean = output_gradient.mul(of_queries(outputs)).sum({2}, true);
    const at::Tensor score_gradient = weight_gradient.sub_(mean).mul_(weights);
    const auto fold = [&](const at::Tensor& every) {  // [N, K, D] to [K, groups, D]
      return every.unflatten(0, {groups, group}).sum(1).transpose(0, 1);
    };
    call.QueryRows(query_gradients, sequence)
        .copy_(at::bmm(score_gradient, of_keys(keys)).mul_(call.scale).transpose(0, 1));
    call.KeyRows(key_gradients, sequence)
        .copy_(fold(at::bmm(score_gradient.transpose(1, 2), of_queries(queries)).mul_(call.scale)));
    const at::Tensor dropped_weights = kept.defined() ? weights.mul(kept) : weights;
    call.KeyRows(value_gradients, sequence).copy_(fold(at::bmm(dropped_weights.transpose(1, 2), output_gradient)));
    if (call.sink) {
      const auto column = [](const at::Tensor& statistic) { return statistic.select(2, 0).transpose(0, 1); };
      const at::Tensor share = call.sink->Widened().unsqueeze(1).sub(column(own_largest)).exp().div(column(own_totals));
      sink_gradients.sub_(share.mul(mean.squeeze(2)).sum(1));
    }
  }
  const auto store = [&](const Tensor& target, const OptionalTensor& rope, const at::Tensor& whole, int64_t own_heads) {
    const int64_t dim = call.Canonical(at::Tensor(target), own_heads).size(-1);
    const auto put = [&](const Tensor& part, const at::Tensor& rows) {
      const at::Tensor stored = at::zeros(part.sizes(), at::kFloat);
      call.Canonical(stored, own_heads).copy_(rows);
      part.Store(stored);
    };
    put(target, whole.narrow(-1, 0, dim));
    if (rope) {
      put(*rope, whole.narrow(-1, dim, whole.size(-1) - dim));
    }
  };
  store(gradients.query, gradients.query_rope, query_gradients, heads);
  store(gradients.key, gradients.key_rope, key_gradients, groups);
  store(gradients.value, OptionalTensor(), value_gradients, groups);
  if (call.sink) {
    gradients.sink->Store(sink_gradients);
  }
}

Plan PlanFlashBackward(const FlashAttention& call, const FlashGradients& gradients) {
  Require(call, gradients);
  auto owned = std::make_shared<FlashAttention>(call);
  return [owned, gradients] { RunFlashBackward(*owned, gradients); };
}

}  // namespace

// What the operator left; the weights of `softmaxIn` are reserved.
#define CANN_SIM_FLASH_LEFT \
  (Tensor, softmaxMax), (Tensor, softmaxSum), (OptionalTensor, softmaxIn), (Tensor, attentionIn)

// `dpse` is reserved and left as it is.
#define CANN_SIM_FLASH_GRADIENTS (Tensor, dq), (Tensor, dk), (Tensor, dv), (OptionalTensor, dpse)

#define CANN_SIM_FLASH_ROPE_GRADIENTS \
  (Tensor, dq), (OptionalTensor, dqRope), (Tensor, dk), (OptionalTensor, dkRope), (Tensor, dv), (OptionalTensor, dpse)

#define CANN_SIM_FLASH_GRADIENT_PLAN(DQ_ROPE, DK_ROPE, DSINK, ...)                                              \
  return PlanFlashBackward(CANN_SIM_FLASH_CALL(__VA_ARGS__),                                                             \
                  {dy, attentionIn, softmaxMax, softmaxSum, dq, dk, dv, DQ_ROPE, DK_ROPE, DSINK})

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreGrad, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalIntArray, prefix), CANN_SIM_FLASH_OPTIONS,
                  CANN_SIM_FLASH_GRADIENTS) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE,
                               {}, {}, 1, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreGradV2, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalIntArray, prefix), CANN_SIM_FLASH_STARTS,
                  CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_GRADIENTS) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE,
                               {}, {}, pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreGradV3, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalTensor, sink), (OptionalIntArray, prefix),
                  CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_GRADIENTS,
                  (OptionalTensor, dsink)) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, dsink, CANN_SIM_NONE, CANN_SIM_NONE, sink, {}, {}, pseType,
                               false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGrad, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS,
                  CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_GRADIENTS) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE,
                               actualSeqQLen.values(), actualSeqKvLen.values(), 1, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV2, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS,
                  CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS, (Int, pseType), CANN_SIM_FLASH_GRADIENTS) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE,
                               actualSeqQLen.values(), actualSeqKvLen.values(), pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV3, (Tensor, query), (OptionalTensor, queryRope), (Tensor, key),
                  (OptionalTensor, keyRope), (Tensor, value), (Tensor, dy), CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS,
                  (Int, pseType), CANN_SIM_FLASH_ROPE_GRADIENTS) {
  CANN_SIM_FLASH_GRADIENT_PLAN(dqRope, dkRope, CANN_SIM_NONE, queryRope, keyRope, CANN_SIM_NONE, actualSeqQLen.values(),
                               actualSeqKvLen.values(), pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionUnpaddingScoreGradV4, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, dy),
                  CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS,
                  CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_GRADIENTS, (OptionalText, softmaxInLayout)) {
  CANN_SIM_FLASH_GRADIENT_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE,
                               actualSeqQLen.values(), actualSeqKvLen.values(), 1, StatisticsAsQueries(softmaxInLayout));
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFlashAttentionUnpaddingScoreGradV5, (Tensor, query), (OptionalTensor, queryRope),
                                     (Tensor, key), (OptionalTensor, keyRope), (Tensor, value), (Tensor, dy),
                                     CANN_SIM_FLASH_MASKS, CANN_SIM_FLASH_LEFT, (OptionalTensor, sink),
                                     (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_STARTS,
                                     CANN_SIM_FLASH_OPTIONS, (Int, pseType), (OptionalText, softmaxInLayout),
                                     CANN_SIM_FLASH_ROPE_GRADIENTS, (OptionalTensor, dsink)) {
  CANN_SIM_FLASH_GRADIENT_PLAN(dqRope, dkRope, dsink, queryRope, keyRope, sink, actualSeqQLen.values(),
                               actualSeqKvLen.values(), pseType, StatisticsAsQueries(softmaxInLayout));
}

}  // namespace cann_sim::operators
