// The versions of FusedInferAttentionScore (FIA): attention over contiguous or paged keys and values, for prefill and decode.
// Sequence lengths are host integers: they are read in the workspace phase and become part of the launch, which is why a
// captured graph must have them rewritten by a task update. Block tables are device memory, read when the kernel runs.

#include "../interface/operator.h"
#include "fused_infer_plan.h"

namespace cann_sim::operators {

namespace {

void RefuseFullQuantisation(std::initializer_list<const OptionalTensor*> tensors) {
  for (const OptionalTensor* tensor : tensors) {
    RefuseIfPresent(*tensor, "attention in int8");
  }
}

}  // namespace

#define CANN_SIM_FIA_TENSORS                                                                                      \
  (Tensor, query), (TensorList, key), (TensorList, value), (OptionalTensor, pseShift), (OptionalTensor, attenMask), \
      (OptionalIntArray, actualSeqLengths), (OptionalIntArray, actualSeqLengthsKv), (OptionalTensor, deqScale1),  \
      (OptionalTensor, quantScale1), (OptionalTensor, deqScale2), (OptionalTensor, quantScale2),                  \
      (OptionalTensor, quantOffset2), (OptionalTensor, antiquantScale), (OptionalTensor, antiquantOffset),        \
      (OptionalTensor, blockTable), (OptionalTensor, queryPaddingSize), (OptionalTensor, kvPaddingSize),          \
      (OptionalTensor, keyAntiquantScale), (OptionalTensor, keyAntiquantOffset),                                  \
      (OptionalTensor, valueAntiquantScale), (OptionalTensor, valueAntiquantOffset),                              \
      (OptionalTensor, keySharedPrefix), (OptionalTensor, valueSharedPrefix), (OptionalIntArray, actualSharedPrefixLen)

#define CANN_SIM_FIA_ATTRIBUTES                                                                                    \
  (Int, numHeads), (Double, scaleValue), (Int, preTokens), (Int, nextTokens), (Text, inputLayout),                 \
      (Int, numKeyValueHeads), (Int, sparseMode), (Int, innerPrecise), (Int, blockSize), (Int, antiquantMode),     \
      (Bool, softmaxLseFlag), (Int, keyAntiquantMode), (Int, valueAntiquantMode)

// Makes the plan; the arguments say whether the version has a learnable sink and rotary parts.
#define CANN_SIM_FIA_PLAN(SINK, QUERY_ROPE, KEY_ROPE, QUERY_SCALE, QUERY_MODE)                                         \
  RefuseFullQuantisation({&deqScale1, &quantScale1, &deqScale2});                                                      \
  return PlanFusedInfer({                                                                                              \
      .query = query,                                                                                                  \
      .key = key,                                                                                                      \
      .value = value,                                                                                                  \
      .output = attentionOut,                                                                                          \
      .position_shift = pseShift,                                                                                      \
      .mask = attenMask,                                                                                               \
      .block_table = blockTable,                                                                                       \
      .sink = SINK,                                                                                                    \
      .query_rope = QUERY_ROPE,                                                                                        \
      .key_rope = KEY_ROPE,                                                                                            \
      .output_scale = quantScale2,                                                                                     \
      .output_offset = quantOffset2,                                                                                   \
      .query_padding = queryPaddingSize,                                                                               \
      .key_padding = kvPaddingSize,                                                                                    \
      .key_prefix = keySharedPrefix,                                                                                   \
      .value_prefix = valueSharedPrefix,                                                                               \
      .log_sum_exp = softmaxLse,                                                                                       \
      .query_lengths = &actualSeqLengths,                                                                              \
      .key_lengths = &actualSeqLengthsKv,                                                                              \
      .prefix_length = &actualSharedPrefixLen,                                                                         \
      .layout = &inputLayout,                                                                                          \
      .heads = numHeads,                                                                                               \
      .kv_heads = numKeyValueHeads,                                                                                    \
      .scale = scaleValue,                                                                                             \
      .pre_tokens = preTokens,                                                                                         \
      .next_tokens = nextTokens,                                                                                       \
      .sparse_mode = sparseMode,                                                                                       \
      .inner_precise = innerPrecise,                                                                                   \
      .block_size = blockSize,                                                                                         \
      .wants_log_sum_exp = softmaxLseFlag,                                                                             \
      .both_scale = antiquantScale,                                                                                    \
      .both_offset = antiquantOffset,                                                                                  \
      .key_scale = keyAntiquantScale,                                                                                  \
      .key_offset = keyAntiquantOffset,                                                                                \
      .value_scale = valueAntiquantScale,                                                                              \
      .value_offset = valueAntiquantOffset,                                                                            \
      .both_mode = antiquantMode,                                                                                      \
      .key_mode = keyAntiquantMode,                                                                                    \
      .value_mode = valueAntiquantMode,                                                                                \
      .query_scale = QUERY_SCALE,                                                                                      \
      .query_mode = QUERY_MODE,                                                                                        \
  })

CANN_SIM_OPERATOR(aclnnFusedInferAttentionScoreV2, CANN_SIM_FIA_TENSORS, CANN_SIM_FIA_ATTRIBUTES,
                  (Tensor, attentionOut), (OptionalTensor, softmaxLse)) {
  CANN_SIM_FIA_PLAN(OptionalTensor(), OptionalTensor(), OptionalTensor(), OptionalTensor(), 0);
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV3, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     CANN_SIM_FIA_ATTRIBUTES, (Tensor, attentionOut), (OptionalTensor, softmaxLse)) {
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  CANN_SIM_FIA_PLAN(OptionalTensor(), queryRope, keyRope, OptionalTensor(), 0);
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV4, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     (OptionalTensor, dequantScaleQuery), (OptionalTensor, learnableSink),
                                     CANN_SIM_FIA_ATTRIBUTES, (Int, queryQuantMode), (Tensor, attentionOut),
                                     (OptionalTensor, softmaxLse)) {
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  CANN_SIM_FIA_PLAN(learnableSink, queryRope, keyRope, dequantScaleQuery, queryQuantMode);
}

}  // namespace cann_sim::operators
