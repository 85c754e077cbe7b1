// Made by tools/documented_arguments from the documents of ops-nn at
// e5c3fa9327ea95ba26d06227e746923580d10921. Do not edit: make it again.
CANN_SIM_DOCUMENTED(aclnnAdaptiveAvgPool2d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveAvgPool2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveAvgPool3d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveAvgPool3dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 5), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveMaxPool2d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT64, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveMaxPool2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(3, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveMaxPool3d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"indices", INT32, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdaptiveMaxPool3dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"indices", INT32, Ranks(4, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddLayerNorm,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"meanOut", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"xOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddLayerNormGrad,
    {"dy", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"rstd", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"mean", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"dsum", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"dxOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"dgammaOut", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"dbetaOut", FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddRelu,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddRmsNorm,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"xOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddRmsNormCast,
    {"x1", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"y1Out", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"y2Out", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"xOut", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddRmsNormDynamicQuantV2,
    {"x1", FLOAT16 | BF16, Ranks(2, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16, Ranks(2, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"smoothScale1", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"smoothScale2", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"beta", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"y1Out", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kStrided},
    {"y2Out", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kStrided},
    {"xOut", FLOAT16 | BF16, Ranks(2, 8), kPlain | kStrided},
    {"scale1Out", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"scale2Out", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddRmsNormQuantV2,
    {"x1", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"scales1", BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"scales2", BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"zeroPoints1", BF16 | INT32, Ranks(1, 8), kPlain | kStrided},
    {"zeroPoints2", BF16 | INT32, Ranks(1, 8), kPlain | kStrided},
    {"beta", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"y1Out", INT8, Ranks(1, 8), kPlain | kStrided},
    {"y2Out", INT8, Ranks(1, 8), kPlain | kStrided},
    {"xOut", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"rmsNormOut", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddbmm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(1, 2), kPlain | kStrided},
    {"batch1", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"batch2", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddmm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"mat1", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddmmWeightNz,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"mat1", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16, Ranks(0, 8), kNz | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddmv,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"mat", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(2, 2), kPlain | kStrided},
    {"vec", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnApplyAdamWV2,
    {"varRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expAvgRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"expAvgSqRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"maxGradNormOptionalRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"grad", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"step", FLOAT | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnApplyTopKTopP,
    {"logits", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"p", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"k", INT32, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAscendAntiQuant,
    {"x", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kStrided},
    {"scale", BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"offset", BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"y", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAscendQuantV3,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kNz | kStrided},
    {"scale", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kNz | kStrided},
    {"offset", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kNz | kStrided},
    {"y", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kNz | kStrided})
CANN_SIM_DOCUMENTED(aclnnAvgPool2d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAvgPool2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAvgPool3d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAvgPool3dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBaddbmm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 3), kPlain | kStrided},
    {"batch1", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"batch2", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchMatMul,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchMatMulWeightNz,
    {"self", FLOAT16 | BF16, Ranks(3, 3), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16, Ranks(0, 8), kNz | kStrided},
    {"out", FLOAT16 | BF16, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNorm,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"runningMean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"runningVar", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"saveMean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"saveInvstd", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"runningMean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"runningVar", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"saveMean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"saveInvstd", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"gradBias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormElemt,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"invstd", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormElemtBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"invstd", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"sumDy", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"sumDyXmu", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"counter", FLOAT16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormGatherStatsWithCounts,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"invstd", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"runningMean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"runningVar", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"counts", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"meanAll", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"invstdAll", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormReduce,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"sum", FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"squareSum", FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormReduceBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"invstd", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"sumDy", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"sumDyXmu", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"gradBias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBinaryCrossEntropy,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBinaryCrossEntropyBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBinaryCrossEntropyWithLogits,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"posWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBinaryCrossEntropyWithLogitsBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"posWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCelu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClippedSwiglu,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"groupIndex", INT64, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConvDepthwise2d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConvTbc,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConvTbcBackward,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradBias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConvolution,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(3, 5), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(3, 5), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 5), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(3, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConvolutionBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradBias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCtcLoss,
    {"logProbs", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"targets", FLOAT16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"negLogLikelihood", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"logAlpha", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCtcLossBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"logProbs", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"targets", FLOAT16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"negLogLikelihood", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"logAlpha", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDeepNorm,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gx", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"meanOut", FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDeepNormGrad,
    {"dy", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gx", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"mean", FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"rstd", FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"dxOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"dgxOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"dbetaOut", FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"dgammaOut", FLOAT, Ranks(1, 7), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDequantBias,
    {"x", INT32, Ranks(2, 2), kPlain},
    {"weightScale", BF16 | FLOAT, Ranks(1, 1), kPlain},
    {"activationScale", FLOAT, Ranks(1, 1), kPlain},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(1, 1), kPlain},
    {"out", FLOAT16 | BF16, Ranks(2, 2), kPlain})
CANN_SIM_DOCUMENTED(aclnnDequantSwigluQuantV2,
    {"x", BF16 | INT32, Ranks(2, 8), kPlain},
    {"weightScale", FLOAT, Ranks(1, 2), kPlain},
    {"activationScale", FLOAT, Ranks(1, 7), kPlain},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(1, 2), kPlain},
    {"quantScale", FLOAT, Ranks(0, 8), kPlain},
    {"quantOffset", FLOAT, Ranks(0, 8), kPlain},
    {"groupIndex", INT64, Ranks(1, 2), kPlain},
    {"yOut", INT8, Ranks(2, 8), kPlain},
    {"scaleOut", FLOAT, Ranks(1, 7), kPlain})
CANN_SIM_DOCUMENTED(aclnnDynamicBlockQuant,
    {"x", FLOAT16 | BF16, Ranks(2, 3), kPlain | kStrided},
    {"yOut", INT8, Ranks(2, 3), kPlain | kStrided},
    {"scaleOut", FLOAT, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDynamicBlockQuantV2,
    {"x", FLOAT16 | BF16, Ranks(2, 3), kPlain | kStrided},
    {"yOut", INT8, Ranks(2, 3), kPlain | kStrided},
    {"scaleOut", FLOAT, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDynamicQuantV2,
    {"x", FLOAT16 | BF16, Ranks(2, 8), kPlain | kStrided},
    {"smoothScales", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"groupIndex", INT32 | INT64, Ranks(1, 1), kPlain | kStrided},
    {"y", INT4 | INT8 | INT32, Ranks(2, 8), kPlain | kStrided},
    {"scale", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"offset", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnElu,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"selfOrResult", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEmbedding,
    {"weight", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 2), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEmbeddingBag,
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"indices", INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 2), kPlain | kStrided},
    {"offsets", INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 1), kPlain | kStrided},
    {"perSampleWeights", FLOAT16 | BF16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"offset2bag", INT32 | INT64, Ranks(0, 1), kPlain | kStrided},
    {"bagSize", INT32 | INT64, Ranks(0, 1), kPlain | kStrided},
    {"maxIndices", INT32 | INT64, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEmbeddingDenseBackward,
    {"grad", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"indices", FLOAT16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEmbeddingRenorm,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnErfinv,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFastGelu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFastGeluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFlatQuant,
    {"x", FLOAT16 | BF16, Ranks(3, 3), kPlain | kStrided},
    {"kroneckerP1", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"kroneckerP2", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"out", INT4 | INT32, Ranks(2, 3), kPlain | kStrided},
    {"quantScale", FLOAT, Ranks(0, 1) | Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFlip,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAbs,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAcos,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddListV2,
    {"x1", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddcdivScalarList,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"scalars", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddcdivScalarV2,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddcmulScalarList,
    {"x1", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"scalars", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAddcmulScalarV2,
    {"x1", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAsin,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachAtan,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachCopy,
    {"x", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachCos,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachCosh,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachDivList,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachDivScalarList,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachDivScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachErf,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachErfc,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachExp,
    {"x", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachExpm1,
    {"x", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLerpList,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLerpScalar,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLog,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLog10,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLog1p,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachLog2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMaximumList,
    {"x1", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMaximumScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMaximumScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMinimumList,
    {"x1", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMinimumScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMinimumScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMulList,
    {"x1", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMulScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachMulScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachNeg,
    {"x", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachNonFiniteCheckAndUnscale,
    {"scaledGrads", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"foundInf", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"invScale", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachNorm,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachPowList,
    {"x1", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachPowScalarAndTensor,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachPowScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachPowScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachReciprocal,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachRoundOffNumberV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSigmoid,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSign,
    {"x", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSin,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSinh,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSqrt,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSubListV2,
    {"x1", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSubScalarList,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachSubScalarV2,
    {"x", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachTan,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachTanh,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnForeachZeroInplace,
    {"x", FLOAT16 | BF16 | FLOAT | INT16 | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFusedQuantMatmul,
    {"x1", INT4 | INT8 | INT32, Ranks(2, 6), kPlain | kStrided},
    {"x2", INT4 | INT8 | INT32, Ranks(2, 6), kPlain | kStrided},
    {"x1Scale", FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"x2Scale", BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"yScale", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x1Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x2Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"yOffset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 1) | Ranks(3, 3), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16, Ranks(2, 6), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFusedQuantMatmulWeightNz,
    {"x1", INT4 | INT8 | INT32, Ranks(2, 6), kPlain | kStrided},
    {"x2", INT4 | INT8 | INT32, Ranks(0, 8), kNz | kStrided},
    {"x1Scale", FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"x2Scale", BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"yScale", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x1Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x2Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"yOffset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 1) | Ranks(3, 3), kPlain | kStrided},
    {"x3", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16, Ranks(2, 6), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGather,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGatherV3,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeGluV3,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"outGelu", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeGluV3Backward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gelu", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGelu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeluBackwardV2,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeluMul,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeluV2,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGemmaRmsNorm,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGlu,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(1, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGluBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupNorm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"rstdOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupNormBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rstd", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradGamma", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradBeta", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupNormSilu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rstdOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupNormSwish,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"rstdOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupNormSwishGrad,
    {"dy", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"rstd", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"beta", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"dxOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"dgammaOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"dbetaOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGroupQuant,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"scale", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"groupIndex", INT32 | INT64, Ranks(1, 1), kPlain | kStrided},
    {"offset", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"y", INT4 | INT8 | INT32, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardshrink,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardshrinkBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardsigmoid,
    {"self", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardsigmoidBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardswish,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardswishBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardswishBackwardV2,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardtanhBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndex,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexAdd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 1), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexAddV2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(1, 1), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexCopy,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexFill,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexFillTensor,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexPutImpl,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"values", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIndexSelect,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddRelu,
    {"selfRef", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddRmsNorm,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddmm,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"mat1", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceCelu,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceElu,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceErfinv,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceHardsigmoid,
    {"self", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceHardswish,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceIndexCopy,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceIndexFill,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceIndexFillTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLeakyRelu,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMaskedScatter,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"mask", BOOL | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMish,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplacePut,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"source", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceQuantScatter,
    {"selfRef", INT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(1, 1), kPlain | kStrided},
    {"updates", FLOAT16 | BF16, Ranks(0, 8), kPlain | kStrided},
    {"quantScales", BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"quantZeroPoints", BF16 | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRReluWithNoise,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"noise", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRelu,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRenorm,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceScatter,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceScatterReduce,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceScatterUpdate,
    {"data", FLOAT16 | BF16 | FLOAT | INT8 | INT32, Ranks(2, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 2), kPlain | kStrided},
    {"updates", FLOAT16 | BF16 | FLOAT | INT8 | INT32, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceScatterValue,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSigmoid,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceThreshold,
    {"selfRef", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInverse,
    {"self", FLOAT16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnKlDivBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnKlDivTargetBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradTarget", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnKthvalue,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"valuesOut", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indicesOut", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnL1Loss,
    {"self", FLOAT16 | BF16 | FLOAT | INT64, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnL1LossBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLSTM,
    {"input", FLOAT16 | FLOAT, Ranks(2, 3), kPlain | kStrided},
    {"params", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"hx", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"batchSizes", INT64, Ranks(1, 1), kPlain | kStrided},
    {"output", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"hy", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"cy", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"iOut", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"jOut", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"fOut", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"oOut", FLOAT16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"hOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"tanhCOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLayerNorm,
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rstdOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLayerNormBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"mean", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"rstd", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradBias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeakyRelu,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeakyReluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLinalgVectorNorm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSigmoid,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSigmoidBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"buffer", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSigmoidForward,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"buffer", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSoftmax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSoftmaxBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogit,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogitGrad,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLstmBackward,
    {"input", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"hx", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"params", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dy", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dh", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dc", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"i", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"g", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"f", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"o", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"h", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"c", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"tanhc", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"batchSizesOptional", INT64, Ranks(0, 8), kPlain | kStrided},
    {"dxOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dhPrevOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dcPrevOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"dparamsOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaskedSoftmaxWithRelPosBias,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"attenMask", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"relativePosBias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMatmul,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(1, 6), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(1, 6), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 6), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMatmulWeightNz,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kNz | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool2dWithIndices,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool2dWithIndicesBackward,
    {"gradOutput", FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"self", FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT32, Ranks(3, 4), kPlain | kStrided},
    {"gradInput", FLOAT, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool2dWithMask,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT8, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool2dWithMaskBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"indices", INT8, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool3dWithArgmax,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"indices", INT32, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxPool3dWithArgmaxBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided},
    {"indices", INT32, Ranks(4, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxUnpool2d,
    {"self", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(3, 4), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxUnpool3d,
    {"self", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(4, 5), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMedian,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMedianDim,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"valuesOut", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indicesOut", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMish,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMishBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"mat2", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMseLoss,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMseLossBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMultilabelMarginLoss,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"target", INT32 | INT64, Ranks(0, 2), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 1), kPlain | kStrided},
    {"isTarget", FLOAT16 | BF16 | FLOAT, Ranks(0, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMv,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"vec", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNLLLoss,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"totalWeightOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNLLLoss2d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"target", INT32 | INT64 | UINT8, Ranks(3, 3), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"totalWeightOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNLLLoss2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"totalWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNLLLossBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"totalWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNanMedian,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNanMedianDim,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"valuesOut", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indicesOut", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNonzero,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", INT64, Ranks(2, 2), kPlain})
CANN_SIM_DOCUMENTED(aclnnNonzeroV2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNorm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPrelu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPreluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradWeight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnQuantMatmulReduceSumWeightNz,
    {"x1", INT8, Ranks(0, 8), kPlain | kStrided},
    {"x2", INT8, Ranks(0, 8), kNz | kStrided},
    {"x1Scale", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"x2Scale", BF16, Ranks(0, 8), kPlain | kStrided},
    {"yScale", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x1Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x2Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"yOffset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", BF16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnQuantMatmulV5,
    {"x1", INT4 | INT8 | INT32, Ranks(2, 6), kPlain | kStrided},
    {"x2", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kNz | kStrided},
    {"x1Scale", FLOAT, Ranks(0, 7), kPlain | kStrided},
    {"x2Scale", BF16 | FLOAT | INT64 | UINT64, Ranks(1, 7), kPlain | kStrided},
    {"yScale", 0, Ranks(2, 2), kPlain | kStrided},
    {"x1Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x2Offset", FLOAT16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"yOffset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(1, 1), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnQuantMatmulWeightNz,
    {"x1", INT4 | INT8, Ranks(2, 6), kPlain | kStrided},
    {"x2", INT4 | INT8 | INT32, Ranks(0, 8), kNz | kStrided},
    {"x1Scale", FLOAT, Ranks(0, 1) | Ranks(3, 7), kPlain | kStrided},
    {"x2Scale", BF16 | FLOAT | INT64 | UINT64, Ranks(0, 1) | Ranks(3, 7), kPlain | kStrided},
    {"yScale", 0, Ranks(2, 2), kPlain | kStrided},
    {"x1Offset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"x2Offset", FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"yOffset", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT4 | INT8 | INT16 | INT32 | INT64 | UINT1 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(1, 1), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT | INT32, Ranks(0, 1) | Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | INT8 | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnQuantize,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"scales", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"zeroPoints", BF16 | INT8 | INT32 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"out", INT8 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRReluWithNoise,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"noise", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRelu,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRenorm,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeatInterleave,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"repeats", INT32 | INT64, Ranks(0, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeatInterleaveInt,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeatInterleaveIntWithDim,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeatInterleaveTensor,
    {"repeats", INT32 | INT64, Ranks(1, 1), kPlain | kStrided},
    {"out", INT32 | INT64, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeatInterleaveWithDim,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"repeats", INT32 | INT64, Ranks(0, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRmsNorm,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"yOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"rstdOut", FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRmsNormGrad,
    {"dy", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"rstd", FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16 | FLOAT, Ranks(1, 7), kPlain | kStrided},
    {"dxOut", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"dgammaOut", FLOAT, Ranks(1, 7), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRmsNormQuant,
    {"x", FLOAT16 | BF16, Ranks(1, 8), kPlain | kStrided},
    {"gamma", FLOAT16 | BF16, Ranks(1, 2), kPlain | kStrided},
    {"beta", FLOAT16 | BF16, Ranks(1, 2), kPlain | kStrided},
    {"scale", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"offset", INT8, Ranks(1, 1), kPlain | kStrided},
    {"y", INT4 | INT8 | INT32, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRotateQuant,
    {"x", FLOAT16 | BF16, Ranks(0, 7), kPlain | kStrided},
    {"rotation", FLOAT16 | BF16, Ranks(2, 3), kPlain | kStrided},
    {"alpha", BF16, Ranks(1, 1), kPlain | kStrided},
    {"yOut", INT8 | INT32, Ranks(0, 7), kPlain | kStrided},
    {"scaleOut", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnScatter,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnScatterAdd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnScatterNdUpdate,
    {"varRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"updates", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnScatterReduce,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnScatterValue,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSigmoid,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSigmoidBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSilu,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSiluBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSmoothL1Loss,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSmoothL1LossBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftMarginLoss,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftMarginLossBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftmax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftmaxBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"output", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftplus,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftplusBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftshrink,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSoftshrinkBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSwiGlu,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSwiGluGrad,
    {"yGrad", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSwiGluQuantV2,
    {"x", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain},
    {"smoothScales", FLOAT, Ranks(0, 8), kPlain},
    {"offsets", FLOAT, Ranks(0, 8), kPlain},
    {"groupIndex", INT32, Ranks(0, 8), kPlain},
    {"yOut", INT4 | INT8, Ranks(0, 8), kPlain},
    {"scaleOut", FLOAT, Ranks(0, 8), kPlain})
CANN_SIM_DOCUMENTED(aclnnSyncBatchNormGatherStats,
    {"totalSum", FLOAT16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"totalSquareSum", FLOAT16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"sampleCount", FLOAT16 | BF16 | FLOAT | INT32, Ranks(1, 1), kPlain | kStrided},
    {"mean", FLOAT16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"variance", FLOAT16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"batchMean", FLOAT16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"batchInvstd", FLOAT16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTake,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"index", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnThnnFusedLstmCell,
    {"inputGates", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"hiddenGates", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cx", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"inputBiasOptional", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"hiddenBiasOptional", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"hyOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cyOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"storageOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnThnnFusedLstmCellBackward,
    {"gradHyOptional", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradCOptional", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cx", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cy", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"storage", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradGatesOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradCxOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"gradBiasOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnThreshold,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnThresholdBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTopKTopPSample,
    {"logits", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"topK", INT32, Ranks(1, 1), kPlain | kStrided},
    {"topP", FLOAT16 | BF16, Ranks(1, 1), kPlain | kStrided},
    {"q", FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"logitsSelectIdx", INT64, Ranks(1, 1), kPlain | kStrided},
    {"logitsTopKPSelect", FLOAT, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTopKTopPSampleV2,
    {"logits", FLOAT16 | BF16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"topK", INT32, Ranks(1, 1), kPlain | kStrided},
    {"topP", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"q", FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"minPs", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"logitsSelectIdx", INT64, Ranks(0, 8), kPlain | kStrided},
    {"logitsTopKPSelect", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"logitsIdx", INT64, Ranks(0, 8), kPlain | kStrided},
    {"logitsSortMasked", FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTransQuantParamV2,
    {"scale", FLOAT, Ranks(0, 2), kPlain},
    {"offset", FLOAT, Ranks(0, 2), kPlain},
    {"out", INT64 | UINT64, Ranks(0, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTransQuantParamV3,
    {"scale", FLOAT, Ranks(0, 2), kPlain},
    {"offset", FLOAT, Ranks(0, 2), kPlain},
    {"out", INT64 | UINT64, Ranks(0, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTransposeBatchMatMul,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"bias", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"scale", INT64 | UINT64, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUnique2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"valueOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"inverseOut", INT64, Ranks(0, 8), kPlain | kStrided},
    {"countsOut", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUniqueConsecutive,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"valueOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"inverseOut", INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"countsOut", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUniqueDim,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"valueOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"inverseOut", INT64, Ranks(0, 8), kPlain | kStrided},
    {"countsOut", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnWeightQuantBatchMatmulV2,
    {"x", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"weight", INT4 | INT8 | INT32, Ranks(2, 2), kPlain | kNz | kStrided},
    {"antiquantScale", FLOAT16 | BF16 | INT64 | UINT64, Ranks(0, 2), kPlain | kStrided},
    {"antiquantOffset", FLOAT16 | BF16 | INT32, Ranks(0, 2), kPlain | kStrided},
    {"quantScale", INT64 | UINT64, Ranks(0, 2), kPlain | kStrided},
    {"quantOffset", FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"bias", FLOAT16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"y", FLOAT16 | BF16 | INT8, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnWeightQuantBatchMatmulV3,
    {"x", FLOAT16 | BF16, Ranks(2, 2), kPlain | kStrided},
    {"weight", INT4 | INT8 | INT32, Ranks(0, 8), kPlain | kNz | kStrided},
    {"antiquantScale", FLOAT16 | BF16 | INT64 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"antiquantOffset", FLOAT16 | BF16 | INT32, Ranks(0, 8), kPlain | kStrided},
    {"quantScale", UINT64, Ranks(0, 8), kPlain | kStrided},
    {"quantOffset", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"bias", FLOAT16 | FLOAT, Ranks(0, 2), kPlain | kStrided},
    {"y", FLOAT16 | BF16 | INT8, Ranks(2, 2), kPlain | kStrided})
