// Made by tools/documented_arguments from the documents of ops-math at
// c41933244c31e44fd496e3bb3212164f8c48c214. Do not edit: make it again.
CANN_SIM_DOCUMENTED(aclnnAbs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAcos,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAcosh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddV3,
    {"other", FLOAT16 | BF16 | FLOAT | INT8 | INT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddcdiv,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided},
    {"tensor1", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided},
    {"tensor2", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddcmul,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"tensor1", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"tensor2", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAddr,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"vec1", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"vec2", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAdds,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAffineGrid,
    {"theta", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAll,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAmax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAmin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAminmax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"minOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"maxOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAminmaxAll,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"minOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"maxOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAminmaxDim,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"minOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"maxOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAmpUpdateScale,
    {"currentScale", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain},
    {"growthTracker", INT32, Ranks(1, 1), kPlain},
    {"foundInf", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain},
    {"updatedScale", FLOAT16 | BF16 | FLOAT, Ranks(1, 1), kPlain},
    {"updatedGrowthTracker", INT32, Ranks(1, 1), kPlain})
CANN_SIM_DOCUMENTED(aclnnAngleV2,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAny,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnArange,
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnArgMax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnArgMin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAsin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAsinh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAtan,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAtan2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnAtanh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBatchNormStats,
    {"input", FLOAT16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"mean", FLOAT, Ranks(1, 1), kPlain | kStrided},
    {"invstd", FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBincount,
    {"self", INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"weights", FLOAT16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseAndScalar,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseAndTensor,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"other", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseNot,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseOrScalar,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseOrTensor,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseXorScalar,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnBitwiseXorTensor,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCast,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCat,
    {"tensors", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCdist,
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCdistBackward,
    {"grad", FLOAT16 | BF16 | FLOAT, Ranks(2, 7), kPlain | kStrided},
    {"x1", FLOAT16 | BF16 | FLOAT, Ranks(2, 7), kPlain | kStrided},
    {"x2", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"cdist", FLOAT16 | BF16 | FLOAT, Ranks(2, 7), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 7), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCeil,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnChannelShuffle,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 7), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 7), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnChunkCat,
    {"tensors", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClamp,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClampMax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClampMaxTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"max", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClampMin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClampMinTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"min", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnClampTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"min", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"max", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnComplex,
    {"real", FLOAT16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"imag", FLOAT16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", COMPLEX32 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnConstantPadNd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCos,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCosh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCummax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"values", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCummin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"values", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCumprod,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnCumsum,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDiv,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDivMod,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDivMods,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDivs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDot,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"tensor", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT32 | UINT8, Ranks(0, 0), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDropoutDoMask,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"mask", UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDropoutGenMask,
    {"out", UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDropoutGenMaskV2,
    {"out", UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnDropoutGenMaskV2Tensor,
    {"seedTensor", INT64, Ranks(0, 8), kPlain | kStrided},
    {"offsetTensor", INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEqScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEqTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEqual,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnErf,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnErfc,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnExp,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnExp2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnExpm1,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnEye,
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(2, 2), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFloor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFloorDivide,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFloorDivides,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFmodScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFmodTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnFrac,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGcd,
    {"self", INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGtScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGtTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHardtanh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnHistc,
    {"self", FLOAT16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIm2col,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAcos,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAcosh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAdd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddcdiv,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided},
    {"tensor1", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided},
    {"tensor2", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddcmul,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"tensor1", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"tensor2", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAddr,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"vec1", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"vec2", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAdds,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAsin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAsinh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAtan,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAtan2,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceAtanh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBernoulli,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBernoulliTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"prob", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBitwiseAndScalar,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBitwiseAndTensor,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"other", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBitwiseXorScalar,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceBitwiseXorTensor,
    {"self", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceCeil,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceClampMax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceClampMaxTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"max", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceClampMinTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"min", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceCopy,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"src", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceCos,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceCosh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceDiv,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceDivMod,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceDivMods,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceDivs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceEqScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceEqTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceErf,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceErfc,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceExp,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceExp2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceExpm1,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFillDiagonal,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFillScalar,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFillTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"value", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFloor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFloorDivide,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFloorDivides,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFmodScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFmodTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceFrac,
    {"self", FLOAT16 | BF16 | FLOAT | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceGeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceGeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceGtScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceGtTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceHardtanh,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLerp,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"end", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLerps,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"end", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLog,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLog10,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLog1p,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLog2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLogicalAnd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLogicalNot,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLogicalOr,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLtScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceLtTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMaskedFillScalar,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"mask", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMaskedFillTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"mask", BOOL, Ranks(0, 8), kPlain | kStrided},
    {"value", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT32 | INT64, Ranks(0, 0), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMul,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceMuls,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceNanToNum,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceNeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceNeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceNormal,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceNormalTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"seedTensor", INT64, Ranks(0, 8), kPlain | kStrided},
    {"offsetTensor", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceOne,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplacePowTensorScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplacePowTensorTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"exponent", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRandom,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRandomTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"seedTensor", INT64, Ranks(1, 1), kPlain},
    {"offsetTensor", INT64, Ranks(1, 1), kPlain})
CANN_SIM_DOCUMENTED(aclnnInplaceRandomWithoutFromTo,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRandomWithoutFromToTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"seedTensor", INT64, Ranks(1, 1), kPlain},
    {"offsetTensor", INT64, Ranks(1, 1), kPlain})
CANN_SIM_DOCUMENTED(aclnnInplaceReciprocal,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRemainderTensorScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRemainderTensorTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRoundDecimals,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceRsqrt,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSinc,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSinh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSqrt,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSub,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceSubs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceTan,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceTanh,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceTril,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceTriu,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX32 | COMPLEX64, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceUniform,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceUniformTensor,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"seedTensor", INT64 | UINT64, Ranks(1, 1), kPlain},
    {"offsetTensor", INT64 | UINT64, Ranks(1, 1), kPlain})
CANN_SIM_DOCUMENTED(aclnnInplaceXLogYScalarOther,
    {"selfRef", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnInplaceZero,
    {"selfRef", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsClose,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsFinite,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsInScalarTensor,
    {"testElements", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsInTensorScalar,
    {"element", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsNegInf,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIsPosInf,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", BOOL, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnKlDiv,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"target", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeftShift,
    {"self", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLeftShifts,
    {"self", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLerp,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"end", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"weight", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLerps,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"end", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLinalgCholesky,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLinalgCross,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLinalgQr,
    {"self", FLOAT16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"q", FLOAT16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"r", FLOAT16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLinspace,
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLog,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLog10,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLog1p,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLog2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogAddExp,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogAddExp2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSpace,
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogSumExp,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogicalAnd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogicalNot,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogicalOr,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLogicalXor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLtScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnLtTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaskedSelect,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"mask", BOOL | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain})
CANN_SIM_DOCUMENTED(aclnnMax,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaxDim,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMaximum,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMean,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMinDim,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT64, Ranks(0, 8), kPlain | kStrided},
    {"indices", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMinimum,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMul,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMuls,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMultinomial,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnMultinomialTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"seedTensor", INT64, Ranks(0, 8), kPlain | kStrided},
    {"offsetTensor", INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNanToNum,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNeScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNeTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNeg,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT32 | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNormalFloatFloat,
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNormalFloatTensor,
    {"std", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNormalTensorFloat,
    {"mean", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnNormalTensorTensor,
    {"mean", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"std", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnOneHot,
    {"self", INT32 | INT64, Ranks(0, 7), kPlain | kStrided},
    {"onValue", FLOAT16 | FLOAT | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"offValue", FLOAT16 | FLOAT | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT | INT32 | INT64, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPdist,
    {"self", FLOAT16 | FLOAT, Ranks(2, 2), kPlain | kStrided},
    {"out", FLOAT16 | FLOAT, Ranks(1, 1), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPolar,
    {"input", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"angle", FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", COMPLEX64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPowScalarTensor,
    {"exponent", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPowTensorScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnPowTensorTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"exponent", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnProd,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnProdDim,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRandperm,
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRange,
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReciprocal,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReduceNansum,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReduceSum,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad1d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad1dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad2d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad3d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReflectionPad3dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRemainderScalarTensor,
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRemainderTensorScalar,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRemainderTensorTensor,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRepeat,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad1d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad1dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad2d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad2dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(3, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad3d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnReplicationPad3dBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(4, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRightShift,
    {"self", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"other", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRoll,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT32, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT32, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRound,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRoundDecimals,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRsqrt,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRsub,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnRsubs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSWhere,
    {"condition", BOOL | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSearchSorted,
    {"sortedSequence", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"sorter", INT64, Ranks(0, 8), kPlain | kStrided},
    {"out", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSearchSorteds,
    {"sortedSequence", FLOAT16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 1), kPlain | kStrided},
    {"sorter", INT64, Ranks(1, 1), kPlain | kStrided},
    {"out", INT32 | INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSign,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT32 | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT32 | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSignbit,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSimThreadExponential,
    {"selfRef", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSin,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSinc,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSinh,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSlogdet,
    {"self", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"signOut", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"logOut", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSort,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"valuesOut", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"indicesOut", INT64, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSplitWithSize,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSqrt,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnStack,
    {"tensors", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 7), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnStd,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnStdMeanCorrection,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"stdOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSub,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSubs,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnSvd,
    {"input", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"sigma", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"u", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"v", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTan,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTanh,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTanhBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTopk,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 8), kPlain | kStrided},
    {"valuesOut", FLOAT16 | BF16 | FLOAT | DOUBLE | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(1, 8), kPlain | kStrided},
    {"indicesOut", INT64, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTrace,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | COMPLEX64 | COMPLEX128, Ranks(2, 2), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | INT64 | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTriangularSolve,
    {"self", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"a", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(2, 8), kPlain | kStrided},
    {"xOut", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided},
    {"mOut", FLOAT | DOUBLE | COMPLEX64 | COMPLEX128, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTril,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTriu,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 0) | Ranks(2, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8 | UINT16 | UINT32 | UINT64, Ranks(0, 0) | Ranks(2, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnTrunc,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUnfoldGrad,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided},
    {"gradIn", FLOAT16 | BF16 | FLOAT, Ranks(1, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnVarCorrection,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnVarMean,
    {"self", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"varOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided},
    {"meanOut", FLOAT16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnXLogYScalarOther,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnXLogYScalarSelf,
    {"other", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnXLogYTensor,
    {"self", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"other", FLOAT16 | BF16 | FLOAT | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | BOOL | INT8 | INT16 | INT32 | INT64 | UINT8, Ranks(0, 8), kPlain | kStrided})
