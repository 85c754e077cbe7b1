// The versions of FusedInferAttentionScore (FIA): attention over contiguous or paged keys and values, for prefill and decode.
// Sequence lengths are host integers: they are read in the workspace phase and become part of the launch, which is why a
// captured graph must have them rewritten by a task update. Block tables are device memory, read when the kernel runs.

#include <memory>

#include "fused_infer_validation.h"
#include "operator.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kWorkspaceAlignment = 512;

const Tensor& OnlyTensor(const TensorList& list) {
  if (list.size() != 1 || !list[0]) {
    RefuseArgument(list.name(), "one tensor (a list of tensors, one a sequence, is not simulated)",
                   std::to_string(list.size()) + " tensors");
  }
  return *list[0];
}

// The arguments that every version of the operator has.
struct Arguments {
  Tensor query;
  const TensorList& key;
  const TensorList& value;
  OptionalTensor mask;
  const OptionalIntArray& query_lengths;
  const OptionalIntArray& key_lengths;
  OptionalTensor block_table;
  OptionalTensor sink, query_rope, key_rope;
  int64_t heads;
  double scale;
  int64_t pre_tokens, next_tokens;
  const Text& layout;
  int64_t kv_heads, sparse_mode, inner_precise, block_size;
  bool wants_log_sum_exp;
  Tensor output, log_sum_exp;
  OptionalTensor key_scale, key_offset, value_scale, value_offset;
  int64_t key_mode, value_mode;
};

// Keys and values are int8 with scales for both, or of the dtype of the query.
void Dequantize(const Arguments& arguments, FusedInferAttention& call) {
  if (!arguments.key_scale && !arguments.value_scale) {
    RequireSameDtype(call.key, call.query);
    RequireSameDtype(call.value, call.query);
    return;
  }
  if (!arguments.key_scale || !arguments.value_scale) {
    const OptionalTensor& absent = arguments.key_scale ? arguments.value_scale : arguments.key_scale;
    RefuseArgument(absent.name(), "scales of keys and values, or of none", "one of them");
  }
  if (arguments.key_mode != arguments.value_mode && !(arguments.key_mode == 0 && arguments.value_mode == 1)) {
    RefuseArgument("valueAntiquantMode", "the mode of the keys, or 1 beside 0", std::to_string(arguments.value_mode));
  }
  call.key_dequantization =
      MakeDequantization(call, call.key, arguments.key_scale, arguments.key_offset, arguments.key_mode);
  call.value_dequantization =
      MakeDequantization(call, call.value, arguments.value_scale, arguments.value_offset, arguments.value_mode);
}

Plan MakePlan(const Arguments& arguments) {
  const LayoutPair& layout = FindLayout(arguments.layout);
  auto call = std::make_shared<FusedInferAttention>(FusedInferAttention{
      arguments.query, OnlyTensor(arguments.key), OnlyTensor(arguments.value), arguments.output, arguments.log_sum_exp,
      arguments.mask, arguments.block_table, arguments.sink, arguments.query_rope, arguments.key_rope, {}, {}, layout.query, layout.output, arguments.heads,
      arguments.kv_heads == 0 ? arguments.heads : arguments.kv_heads, arguments.block_size, arguments.sparse_mode,
      arguments.pre_tokens, arguments.next_tokens, arguments.scale, arguments.wants_log_sum_exp, {}});
  const int query_rank = layout.query == QueryLayout::kBSND || layout.query == QueryLayout::kBNSD ? 4 : 3;
  RequireDtype(call->query, kHalves);
  RequireRank(call->query, query_rank, query_rank);
  RequireContiguous(call->query);
  for (const Tensor* cache : {&call->key, &call->value}) {
    RequireContiguous(*cache);
    if (!call->block_table) {
      RequireRank(*cache, query_rank, query_rank);
    }
  }
  if (arguments.inner_precise < 0 || arguments.inner_precise > 3) {
    RefuseArgument("innerPrecise", "0, 1, 2 or 3", std::to_string(arguments.inner_precise));
  }
  RequireHeads(*call);
  if (call->block_table) {
    const int64_t batch =
        call->packed() ? static_cast<int64_t>(arguments.query_lengths.values().size()) : call->query.size(0);
    RequirePages(*call, batch);
  }
  Dequantize(arguments, *call);
  if (CacheDim(*call, call->key) != DimOf(call->query, layout.query, call->heads)) {
    RefuseArgument(call->key.name(),
                   "a head dimension of " + std::to_string(DimOf(call->query, layout.query, call->heads)) + " as 'query'",
                   std::to_string(CacheDim(*call, call->key)));
  }
  RequireRope(*call);
  call->sequences = call->packed() ? PackedSequences(*call, arguments.query_lengths, arguments.key_lengths)
                                   : BatchSequences(*call, arguments.query_lengths, arguments.key_lengths);
  RequireMask(*call);
  RequireOutputs(*call);
  if (call->sink) {
    RequireShape(*call->sink, {call->heads});
  }
  Plan plan([call] { call->Run(); });
  // Depends on the query alone, so a workspace asked for once serves every length. The amount is the simulator's own.
  const int64_t bytes = call->query.numel() * static_cast<int64_t>(sizeof(float));
  plan.workspace_size = static_cast<uint64_t>((bytes / kWorkspaceAlignment + 1) * kWorkspaceAlignment);
  return plan;
}

void RefuseQuantisation(std::initializer_list<const OptionalTensor*> tensors) {
  for (const OptionalTensor* tensor : tensors) {
    RefuseIfPresent(*tensor, "quantisation");
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

// Refuses what is not simulated and makes the plan of the rest; the arguments stand for what the version has of a
// learnable sink and of rotary parts.
#define CANN_SIM_FIA_PLAN(SINK, QUERY_ROPE, KEY_ROPE)                                                                  \
  RefuseIfPresent(pseShift, "a position shift");                                                                       \
  RefuseQuantisation({&deqScale1, &quantScale1, &deqScale2, &quantScale2, &quantOffset2});                             \
  RefuseIfPresent(antiquantScale, "one tensor of scales for keys and values (keyAntiquantScale is)");                  \
  RefuseIfPresent(antiquantOffset, "one tensor of offsets for keys and values (keyAntiquantOffset is)");               \
  RefuseIfPresent(queryPaddingSize, "padding on the left");                                                            \
  RefuseIfPresent(kvPaddingSize, "padding on the left");                                                               \
  RefuseIfPresent(keySharedPrefix, "a shared prefix");                                                                 \
  RefuseIfPresent(valueSharedPrefix, "a shared prefix");                                                               \
  return MakePlan({query, key, value, attenMask, actualSeqLengths, actualSeqLengthsKv, blockTable, SINK, QUERY_ROPE,   \
                   KEY_ROPE, numHeads, scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads, sparseMode,   \
                   innerPrecise, blockSize, softmaxLseFlag, attentionOut, softmaxLse, keyAntiquantScale,               \
                   keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset, keyAntiquantMode,                    \
                   valueAntiquantMode})

CANN_SIM_OPERATOR(aclnnFusedInferAttentionScoreV2, CANN_SIM_FIA_TENSORS, CANN_SIM_FIA_ATTRIBUTES,
                  (Tensor, attentionOut), (Tensor, softmaxLse)) {
  CANN_SIM_FIA_PLAN(OptionalTensor(), OptionalTensor(), OptionalTensor());
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV3, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     CANN_SIM_FIA_ATTRIBUTES, (Tensor, attentionOut), (Tensor, softmaxLse)) {
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  CANN_SIM_FIA_PLAN(OptionalTensor(), queryRope, keyRope);
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV4, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     (OptionalTensor, dequantScaleQuery), (OptionalTensor, learnableSink),
                                     CANN_SIM_FIA_ATTRIBUTES, (Int, queryQuantMode), (Tensor, attentionOut),
                                     (Tensor, softmaxLse)) {
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  RefuseIfPresent(dequantScaleQuery, "quantisation");
  CANN_SIM_FIA_PLAN(learnableSink, queryRope, keyRope);
}

}  // namespace cann_sim::operators
