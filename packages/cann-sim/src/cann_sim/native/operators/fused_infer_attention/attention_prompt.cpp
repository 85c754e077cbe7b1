// PromptFlashAttention and IncreFlashAttention: the older interfaces to the kernels of FusedInferAttentionScore.

#include "../interface/operator.h"
#include "../interface/optional_tensor_list.h"
#include "fused_infer_plan.h"

namespace cann_sim::operators {

namespace {

// A list of one, as the plan takes keys and values.
TensorList ListOf(const aclTensor* tensor, const char* name) {
  aclTensorList list;
  list.tensors.push_back(const_cast<aclTensor*>(tensor));
  return TensorList(&list, name);
}

// An argument that stays what torch_npu made of it, for a list of one.
class TensorAsList : public TensorList {
 public:
  using Abi = const aclTensor*;

  TensorAsList(const aclTensor* tensor, const char* name) : TensorList(ListOf(tensor, name)) {}
};

void RefuseIntegers(std::initializer_list<const OptionalTensor*> tensors) {
  for (const OptionalTensor* tensor : tensors) {
    RefuseIfPresent(*tensor, "attention in int8");
  }
}

}  // namespace

CANN_SIM_OPERATOR(aclnnPromptFlashAttentionV3, (Tensor, query), (TensorAsList, key), (TensorAsList, value),
                  (OptionalTensor, pseShift), (OptionalTensor, attenMask), (OptionalIntArray, actualSeqLengths),
                  (OptionalIntArray, actualSeqLengthsKv), (OptionalTensor, deqScale1), (OptionalTensor, quantScale1),
                  (OptionalTensor, deqScale2), (OptionalTensor, quantScale2), (OptionalTensor, quantOffset2),
                  (Int, numHeads), (Double, scaleValue), (Int, preTokens), (Int, nextTokens), (Text, inputLayout),
                  (Int, numKeyValueHeads), (Int, sparseMode), (Int, innerPrecise), (Tensor, attentionOut)) {
  RefuseIntegers({&deqScale1, &quantScale1, &deqScale2});
  return PlanFusedInfer({
      .query = query,
      .key = key,
      .value = value,
      .output = attentionOut,
      .position_shift = pseShift,
      .mask = attenMask,
      .output_scale = quantScale2,
      .output_offset = quantOffset2,
      .query_lengths = &actualSeqLengths,
      .key_lengths = &actualSeqLengthsKv,
      .layout = &inputLayout,
      .heads = numHeads,
      .kv_heads = numKeyValueHeads,
      .scale = scaleValue,
      .pre_tokens = preTokens,
      .next_tokens = nextTokens,
      .sparse_mode = sparseMode,
      .inner_precise = innerPrecise,
  });
}

CANN_SIM_OPERATOR(aclnnIncreFlashAttentionV4, (Tensor, query), (TensorList, key), (TensorList, value),
                  (OptionalTensor, pseShift), (OptionalTensor, attenMask), (OptionalIntArray, actualSeqLengths),
                  (OptionalTensor, dequantScale1), (OptionalTensor, quantScale1), (OptionalTensor, dequantScale2),
                  (OptionalTensor, quantScale2), (OptionalTensor, quantOffset2), (OptionalTensor, antiquantScale),
                  (OptionalTensor, antiquantOffset), (OptionalTensor, blockTable), (OptionalTensor, kvPaddingSize),
                  (Int, numHeads), (Double, scaleValue), (Text, inputLayout), (Int, numKeyValueHeads), (Int, blockSize),
                  (Int, innerPrecise), (Tensor, attentionOut)) {
  RefuseIntegers({&dequantScale1, &quantScale1, &dequantScale2});
  const int64_t positions = query.rank() < 2 ? 0 : inputLayout.value() == "BNSD" ? query.size(-2) : query.size(1);
  if (positions != 1) {
    RefuseArgument(query.name(), "one position for each batch entry", Describe(query.sizes()));
  }
  return PlanFusedInfer({
      .query = query,
      .key = key,
      .value = value,
      .output = attentionOut,
      .position_shift = pseShift,
      .mask = attenMask,
      .block_table = blockTable,
      .output_scale = quantScale2,
      .output_offset = quantOffset2,
      .key_padding = kvPaddingSize,
      .key_lengths = &actualSeqLengths,
      .layout = &inputLayout,
      .heads = numHeads,
      .kv_heads = numKeyValueHeads,
      .scale = scaleValue,
      .inner_precise = innerPrecise,
      .block_size = blockSize,
      .both_scale = antiquantScale,
      .both_offset = antiquantOffset,
  });
}

}  // namespace cann_sim::operators
