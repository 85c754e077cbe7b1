// Made by tools/documented_arguments from the documents of ops-cv at
// 6ae87653464d2afb064c829e529abba2e278b0c4. Do not edit: make it again.
CANN_SIM_DOCUMENTED(aclnnGridSampler2D,
    {"input", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"grid", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGridSampler2DBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"grid", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"inputGrad", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"gridGrad", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGridSampler3D,
    {"input", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"grid", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnGridSampler3DBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"input", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"grid", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"inputGrad", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"gridGrad", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnIm2colBackward,
    {"gradOutput", FLOAT16 | BF16 | FLOAT, Ranks(2, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(0, 8), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBicubic2d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBicubic2dAA,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBicubic2dAAGrad,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBicubic2dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBilinear2d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBilinear2dAA,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBilinear2dAABackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBilinear2dBackward,
    {"gradOut", FLOAT16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleBilinear2dBackwardV2,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleLinear1d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleLinear1dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest1dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(3, 3), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest1dV2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | UINT8, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | UINT8, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest2dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest2dV2,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE | UINT8, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE | UINT8, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest3d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearest3dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact1d,
    {"self", FLOAT16 | BF16 | FLOAT | UINT8, Ranks(3, 3), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | UINT8, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact1dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(3, 3), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact2d,
    {"self", FLOAT16 | BF16 | FLOAT | UINT8, Ranks(4, 4), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | UINT8, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact2dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(4, 4), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact3d,
    {"self", FLOAT16 | BF16 | FLOAT, Ranks(5, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleNearestExact3dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT, Ranks(5, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleTrilinear3d,
    {"self", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"out", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
CANN_SIM_DOCUMENTED(aclnnUpsampleTrilinear3dBackward,
    {"gradOut", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided},
    {"gradInput", FLOAT16 | BF16 | FLOAT | DOUBLE, Ranks(5, 5), kPlain | kStrided})
