// Operators that torch_npu may ask for and the simulated device does not have.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace cann_sim::operators {

// Those whose document (CANN's of the operator, or op-plugin's of the torch operator) lists other products than Atlas A2; sorted.
inline constexpr std::array<std::string_view, 72> kOperatorsOfOtherDevices{
    "aclnnAddRmsNormDynamicMxQuant",
    "aclnnAlltoAllMatmul",
    "aclnnAlltoAllMatmulV2",
    "aclnnAlltoAllvGroupedMatMul",
    "aclnnAlltoAllvGroupedMatMulV2",
    "aclnnAlltoAllvQuantGroupedMatMul",
    "aclnnAlltoAllvQuantGroupedMatMulV2",
    "aclnnAntiMxQuant",
    "aclnnApplyAdam",
    "aclnnApplyAdamW",
    "aclnnAttentionToFFN",
    "aclnnBucketize",
    "aclnnCIoU",
    "aclnnConfusionTranspose",
    "aclnnDeformableConv2dBackward",
    "aclnnDistributeBarrier",
    "aclnnDistributeBarrierV2",
    "aclnnDropoutV3",
    "aclnnDropoutV3Grad",
    "aclnnDualLevelQuantMatmulWeightNz",
    "aclnnDynamicBlockMxQuant",
    "aclnnDynamicDualLevelMxQuant",
    "aclnnDynamicMxQuant",
    "aclnnDynamicMxQuantV2",
    "aclnnDynamicMxQuantV3",
    "aclnnDynamicMxQuantWithDualAxis",
    "aclnnDynamicMxQuantWithDualAxisV2",
    "aclnnDynamicQuantV3",
    "aclnnDynamicQuantV4",
    "aclnnFFNToAttention",
    "aclnnFusedCausalConv1d",
    "aclnnFusedMatmul",
    "aclnnGeluQuant",
    "aclnnGroupedDynamicBlockQuant",
    "aclnnGroupedDynamicBlockQuantV2",
    "aclnnGroupedDynamicMxQuant",
    "aclnnGroupedDynamicMxQuantV2",
    "aclnnGroupedMatMulAlltoAllv",
    "aclnnGroupedMatMulAlltoAllvV2",
    "aclnnGroupedQuantMax",
    "aclnnInplaceQuantScatterV2",
    "aclnnMaskedCausalConv1d",
    "aclnnMaskedScale",
    "aclnnMatmulAlltoAll",
    "aclnnMatmulAlltoAllV2",
    "aclnnMatmulCompressDequant",
    "aclnnMhcPost",
    "aclnnMhcPre",
    "aclnnMhcPreV2",
    "aclnnMhcSinkhorn",
    "aclnnMoeDistributeCombineAddRmsNorm",
    "aclnnMoeDistributeCombineAddRmsNormV2",
    "aclnnMoeUpdateExpert",
    "aclnnQuantBatchMatmulInplaceAdd",
    "aclnnQuantMatmulAllReduceV4",
    "aclnnQuantMatmulDequant",
    "aclnnQuantMax",
    "aclnnRepeatInterleaveGrad",
    "aclnnRmsNormDynamicMxQuant",
    "aclnnRmsNormGradQuant",
    "aclnnRmsNormQuantV3",
    "aclnnStridedSlice",
    "aclnnSwigluBackwardMxQuantWithDualAxis",
    "aclnnSwigluGroupQuant",
    "aclnnSwigluGroupQuantGrad",
    "aclnnSwigluMxQuant",
    "aclnnSwigluMxQuantWithDualAxis",
    "aclnnTransposeQuantBatchMatMul",
    "aclnnTransposeQuantBatchMatMulWeightNz",
    "aclnnWeightQuantBatchMatmulNz",
    "aclnnWeightQuantMatmulAllReduce",
    "aclnnWeightQuantPreprocess",
};

// Those that are simulated, and that Atlas inference products (310P) lack by their documents in ops-transformer: fused attention
// of inference in all its versions, attention of training, rotation of positions, and exchange between experts; sorted. Other
// documents are not taken: those of ops-math and ops-nn leave out additions and comparisons too, which engines run there.
inline constexpr std::array<std::string_view, 23> kMissingOnInferenceProducts{
    "aclnnFlashAttentionScore",
    "aclnnFlashAttentionScoreGrad",
    "aclnnFlashAttentionScoreGradV2",
    "aclnnFlashAttentionScoreV2",
    "aclnnFlashAttentionUnpaddingScoreGrad",
    "aclnnFlashAttentionUnpaddingScoreGradV2",
    "aclnnFlashAttentionUnpaddingScoreGradV3",
    "aclnnFlashAttentionUnpaddingScoreGradV4",
    "aclnnFlashAttentionVarLenScore",
    "aclnnFlashAttentionVarLenScoreV2",
    "aclnnFlashAttentionVarLenScoreV3",
    "aclnnFlashAttentionVarLenScoreV4",
    "aclnnFusedInferAttentionScoreV2",
    "aclnnFusedInferAttentionScoreV3",
    "aclnnFusedInferAttentionScoreV4",
    "aclnnMoeDistributeCombine",
    "aclnnMoeDistributeCombineV2",
    "aclnnMoeDistributeCombineV3",
    "aclnnMoeDistributeDispatch",
    "aclnnMoeDistributeDispatchV2",
    "aclnnMoeDistributeDispatchV3",
    "aclnnRotaryPositionEmbedding",
    "aclnnRotaryPositionEmbeddingGrad",
};

inline bool IsMissingOnInferenceProducts(std::string_view name) {
  return std::binary_search(kMissingOnInferenceProducts.begin(), kMissingOnInferenceProducts.end(), name);
}

inline bool IsOfOtherDevices(std::string_view name) {
  return std::binary_search(kOperatorsOfOtherDevices.begin(), kOperatorsOfOtherDevices.end(), name);
}

}  // namespace cann_sim::operators
