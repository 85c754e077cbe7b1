// FlashAttentionScore: attention for training, with the statistics that its gradient needs.

#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "../interface/operator.h"
#include "attention.h"
#include "flash_attention.h"

namespace cann_sim::operators {

namespace {

struct FlashResults {
  Tensor largest, totals, output;
};

void RunFlash(const FlashAttention& call, const FlashResults& results) {
  const int64_t groups = call.key_heads();
  const at::Tensor queries = call.Queries();
  const at::Tensor keys = call.Keys();
  const at::Tensor values = call.Canonical(call.value.Widened(), groups);
  const at::Tensor whole = at::zeros(results.output.sizes(), at::kFloat);
  const at::Tensor outputs = call.Canonical(whole, call.heads);
  const at::Tensor largest = at::zeros(results.largest.sizes(), at::kFloat);
  const at::Tensor totals = at::zeros(results.largest.sizes(), at::kFloat);
  const at::Tensor sinks = at::Tensor(call.sink);
  for (const FlashSequence& sequence : call.Sequences()) {
    const at::Tensor own_queries = call.QueryRows(queries, sequence).contiguous();
    const at::Tensor own_keys = call.KeyRows(keys, sequence);
    const at::Tensor own_values = call.KeyRows(values, sequence);
    const AttentionResult result = Attend(own_queries, own_keys, own_values, call.scale, call.Hidden(sequence), sinks,
                                          call.Shift(sequence));
    const auto keep = [&](const at::Tensor& target, const at::Tensor& rows) {
      const at::Tensor own = call.Statistic(target, sequence);
      own.copy_(rows.unsqueeze(-1).expand(own.sizes()));
      return own;
    };
    const at::Tensor own_largest = keep(largest, result.largest);
    const at::Tensor own_totals = keep(totals, result.total);
    const at::Tensor kept = call.Kept(sequence);
    at::Tensor output = result.output;
    if (kept.defined()) {
      const at::Tensor weights = call.Weights(sequence, own_queries, own_keys, own_largest, own_totals).mul_(kept);
      output = at::bmm(weights, own_values.repeat_interleave(call.heads / groups, 1).transpose(0, 1)).transpose(0, 1);
    }
    call.QueryRows(outputs, sequence).copy_(output);
  }
  results.output.Store(whole);
  results.largest.Store(largest);
  results.totals.Store(totals);
}

Plan PlanFlash(const FlashAttention& call, const FlashResults& results) {
  call.Require();
  call.RequireOutput(results.output);
  call.RequireStatistic(results.largest);
  call.RequireStatistic(results.totals);
  auto owned = std::make_shared<FlashAttention>(call);
  return [owned, results] { RunFlash(*owned, results); };
}

}  // namespace

#define CANN_SIM_FLASH_RESULTS (Tensor, softmaxMax), (Tensor, softmaxSum), (OptionalTensor, softmaxOut), (Tensor, attentionOut)

#define CANN_SIM_FLASH_PLAN(...)                                                                              \
  return PlanFlash(CANN_SIM_FLASH_CALL(__VA_ARGS__), {softmaxMax, softmaxSum, attentionOut})

CANN_SIM_OPERATOR(aclnnFlashAttentionScore, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, {}, {}, 1, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreV2, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS, (Int, pseType),
                  CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, {}, {}, pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionScoreV3, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalTensor, sink), (OptionalIntArray, prefix), CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS,
                  (Int, pseType), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, sink, {}, {}, pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScore, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_OPTIONS, CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(), 1,
                      false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV2, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS,
                  (Int, pseType), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(),
                      pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV3, (Tensor, query), (OptionalTensor, queryRope), (Tensor, key),
                  (OptionalTensor, keyRope), (Tensor, value), CANN_SIM_FLASH_MASKS, (OptionalIntArray, prefix),
                  CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS, (Int, pseType),
                  CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(queryRope, keyRope, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(), pseType, false);
}

CANN_SIM_OPERATOR(aclnnFlashAttentionVarLenScoreV4, (Tensor, query), (Tensor, key), (Tensor, value), CANN_SIM_FLASH_MASKS,
                  (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS, CANN_SIM_FLASH_OPTIONS, (OptionalText, softmaxLayout),
                  CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(CANN_SIM_NONE, CANN_SIM_NONE, CANN_SIM_NONE, actualSeqQLen.values(), actualSeqKvLen.values(), 1,
                      StatisticsAsQueries(softmaxLayout));
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFlashAttentionVarLenScoreV5, (Tensor, query), (OptionalTensor, queryRope),
                                     (Tensor, key), (OptionalTensor, keyRope), (Tensor, value), CANN_SIM_FLASH_MASKS,
                                     (OptionalTensor, sink), (OptionalIntArray, prefix), CANN_SIM_FLASH_TOTALS,
                                     CANN_SIM_FLASH_STARTS, CANN_SIM_FLASH_OPTIONS, (Int, pseType),
                                     (OptionalText, softmaxLayout), CANN_SIM_FLASH_RESULTS) {
  CANN_SIM_FLASH_PLAN(queryRope, keyRope, sink, actualSeqQLen.values(), actualSeqKvLen.values(), pseType,
                      StatisticsAsQueries(softmaxLayout));
}

}  // namespace cann_sim::operators
