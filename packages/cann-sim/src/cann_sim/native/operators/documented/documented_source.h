// What tools/documented_arguments does not find in documents, written by hand. Rows of operators whose document is announced
// but not there yet are read from the definitions of their kernels (op_host/*_def.cpp of ops-transformer, aclnnFFNV2's among
// them). The document of aclnnGroupedMatmulFinalizeRoutingV3 holds an unfinished merge: read from
// aclnn_grouped_matmul_finalize_routing.cpp. That of aclnnTransposeBatchMatMulWeightNz is filed under another spelling: read
// there, and in aclnn_transpose_batch_mat_mul.cpp. Then the operators of which no facts are public. A new operator that a
// document describes needs no line here: make the other headers again.
CANN_SIM_DOCUMENTED(aclnnFFNV2,
    {"x", FLOAT16 | BF16 | INT8, Ranks(0, 8), kPlain | kStrided},
    {"weight1", FLOAT16 | BF16 | INT4 | INT8, Ranks(0, 8), kPlain | kStrided},
    {"weight2", FLOAT16 | BF16 | INT4 | INT8, Ranks(0, 8), kPlain | kStrided},
    {"bias1", FLOAT16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"bias2", FLOAT16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"scale", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"offset", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"deqScale1", BF16 | FLOAT | INT64 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"deqScale2", BF16 | FLOAT | INT64 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"antiquantScale1", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"antiquantScale2", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"antiquantOffset1", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"antiquantOffset2", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"y", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupedMatmulFinalizeRoutingV3,
    {"x1", INT8, Ranks(0, 8), kPlain | kStrided},
    {"x2", INT32, Ranks(0, 8), kPlain | kStrided},
    {"scale", INT64, Ranks(0, 8), kPlain},
    {"bias", FLOAT, Ranks(0, 8), kPlain},
    {"offset", FLOAT, Ranks(0, 8), kPlain},
    {"antiquantScale", FLOAT, Ranks(0, 8), kPlain},
    {"antiquantOffset", FLOAT, Ranks(0, 8), kPlain},
    {"pertokenScale", FLOAT, Ranks(0, 8), kPlain},
    {"groupList", INT64, Ranks(0, 8), kPlain},
    {"sharedInput", BF16, Ranks(0, 8), kPlain},
    {"logit", FLOAT, Ranks(0, 8), kPlain},
    {"rowIndex", INT64, Ranks(0, 8), kPlain},
    {"out", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInterleaveRope,
    {"x", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"cos", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"sin", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeComputeExpertTokens,
    {"sortedExperts", INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeFinalizeRoutingV2,
    {"expandedX", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expandedRowIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"scales", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expertIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeGatingTopKSoftmax,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"finished", BOOL, Ranks(0, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expertIdxOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"rowIdxOut", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeGatingTopKSoftmaxV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"finished", BOOL, Ranks(0, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expertIdxOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"softmaxOut", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeInitRouting,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rowIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expandedXOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expandedRowIdxOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expandedExpertIdxOut", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeInitRoutingQuantV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expertIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"scale", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"offset", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expandedXOut", INT8, Ranks(0, 8), kPlain | kStrided},
    {"expandedRowIdxOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertTokensCountOrCumsumOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertTokensBeforeCapacityOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"dynamicQuantScaleOut", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeInitRoutingV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expertIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expandedXOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expandedRowIdxOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertTokensCountOrCumsumOut", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertTokensBeforeCapacityOut", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeReRouting,
    {"tokens", FLOAT16 | BF16 | INT8, Ranks(0, 8), kPlain | kStrided},
    {"expertTokenNumPerRank", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"perTokenScales", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"permuteTokens", FLOAT16 | BF16 | INT8, Ranks(0, 8), kPlain | kStrided},
    {"permutePerTokenScales", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"permuteTokenIdx", INT32, Ranks(0, 8), kPlain | kStrided},
    {"expertTokenNum", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenPermute,
    {"tokens", FLOAT16 | BF16 | FLOAT | INT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"permuteTokensOut", FLOAT16 | BF16 | FLOAT | INT8, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndicesOut", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenPermuteGrad,
    {"permutedOutputGrad", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndices", INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenPermuteWithRoutingMap,
    {"tokens", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"routingMap", BOOL | INT8, Ranks(0, 8), kPlain | kStrided},
    {"probs", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"permuteTokensOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"permuteProbsOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndicesOut", INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenPermuteWithRoutingMapGrad,
    {"permutedTokenOutGrad", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"probsGrad", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndices", INT32, Ranks(0, 8), kPlain | kStrided},
    {"routingMap", BOOL | INT8, Ranks(0, 8), kPlain | kStrided},
    {"tokensGradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"probsGradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenUnpermute,
    {"permutedTokens", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndices", INT32, Ranks(0, 8), kPlain | kStrided},
    {"probs", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenUnpermuteGrad,
    {"permutedTokens", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"unpermutedTokensGrad", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndices", INT32, Ranks(0, 8), kPlain | kStrided},
    {"probs", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"permutedTokensGradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"probsGradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMoeTokenUnpermuteWithRoutingMap,
    {"permutedTokens", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sortedIndices", INT32, Ranks(0, 8), kPlain | kStrided},
    {"routingMap", BOOL | INT8, Ranks(0, 8), kPlain | kStrided},
    {"probs", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"unpermutedTokens", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"outIndex", INT32, Ranks(0, 8), kPlain | kStrided},
    {"permutedTokenId", INT32, Ranks(0, 8), kPlain | kStrided},
    {"permuteProbs", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRopeWithSinCosCache,
    {"positions", INT64, Ranks(0, 8), kPlain | kStrided},
    {"queryIn", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"keyIn", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cosSinCache", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"queryOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"keyOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTransposeBatchMatMulWeightNz,
    {"x1", FLOAT16 | BF16, Ranks(3, 3), kPlain | kStrided},
    {"x2", FLOAT16 | BF16, Ranks(0, 8), kNz | kStrided},
    {"bias", 0, Ranks(0, 8), kPlain | kStrided},
    {"scale", INT64 | UINT64, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_UNDOCUMENTED(aclnnAttentionUpdate, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnBlockSparseAttention, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnBlockSparseAttentionGrad, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnChunkGatedDeltaRule, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnFlashAttentionScoreGradV3, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnFlashAttentionScoreV3, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnFlashAttentionUnpaddingScoreGradV5, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnFlashAttentionVarLenScoreV5, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnGatherPaKvCache, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmul, "its document is announced, not there; what goes with what decides, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulSwigluQuantV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulSwigluQuantWeightNZ, "its document is announced, not there; what goes with what decides, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulSwigluQuantWeightNzV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulV4, "its document is announced, not there; what goes with what decides, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulV5, "its document is announced, not there; what goes with what decides, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnGroupedMatmulWeightNz, "its document is announced, not there; what goes with what decides, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnKvQuantSparseFlashAttention, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnKvRmsNormRopeCache, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnKvRmsNormRopeCacheV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnLightningIndexer, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnMlaPrologV2WeightNz, "its document tells dtypes by scenario, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnMlaPrologV3WeightNz, "its document tells dtypes by scenario, which the body knows")
CANN_SIM_UNDOCUMENTED(aclnnMoeDistributeCombineV4, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnMoeDistributeDispatchV4, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnMoeFinalizeRoutingV4, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnMoeGatingTopKV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnQkvRmsNormRopeCache, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnQuantLightningIndexer, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnRecurrentGatedDeltaRule, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnRingAttentionUpdateV2, "neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnRopeWithSinCosCacheV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnRotaryPositionEmbeddingV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnScatterPaCache, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnScatterPaKvCache, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnSparseFlashAttention, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnSparseFlashAttentionV2, "of a later CANN: neither its document nor its source is public")
CANN_SIM_UNDOCUMENTED(aclnnNpuFormatCast, "it casts between formats, of which its document tells other products'")
