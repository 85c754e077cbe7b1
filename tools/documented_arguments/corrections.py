"""Differences between operator sources, which decide what is rejected, and their documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from documented_arguments.argument import ANY_RANK, Argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Replaces parts of a document's row.

    Attributes:
        reason: What the source says, and where.
        data_types: Names separated by blanks; `+NAME` and `-NAME` change the document's.
        ranks: Numbers of dimensions.
        nz: Whether the format FRACTAL_NZ is accepted.
        plain: Whether a plain format is accepted.
        strided: Whether a tensor that is not contiguous is accepted.
    """

    reason: str
    data_types: str | None = None
    ranks: frozenset[int] | None = None
    nz: bool | None = None
    plain: bool | None = None
    strided: bool | None = None

    def apply(self, argument: Argument) -> Argument:
        """Return the corrected row."""
        types = argument.data_types
        if self.data_types is not None:
            words = self.data_types.split()
            if not words or not all(word[0] in "+-" for word in words):
                types = frozenset()
            types |= {word.lstrip("+") for word in words if word[0] != "-"}
            types -= {word[1:] for word in words if word[0] == "-"}
        given = {"ranks": self.ranks, "nz": self.nz, "plain": self.plain, "strided": self.strided}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(argument, data_types=types, **changes)  # type: ignore[arg-type]


_REALS = "FLOAT16 BF16 FLOAT DOUBLE BOOL INT8 INT16 INT32 INT64 UINT8"
_FLOATS = "FLOAT16 BF16 FLOAT"
_INTEGERS = "INT8 INT16 INT32 INT64 UINT8"
_COMPLEX = "COMPLEX64 COMPLEX128"
_PLACEHOLDER = (
    "without the flag engines give one of the dtype of the query; the body checks with it"
)
_EVERY = f"{_REALS} UINT16 UINT32 UINT64 INT4 UINT1 COMPLEX32 {_COMPLEX}"


def _types(reason: str, **arguments: str) -> dict[str, Correction]:
    """Return corrections of dtypes by argument."""
    return {name: Correction(reason=reason, data_types=types) for name, types in arguments.items()}


def _any_rank(reason: str, *arguments: str) -> dict[str, Correction]:
    """Return corrections that remove a document's limits on dimensions."""
    return _ranks(reason, ANY_RANK, *arguments)


def _ranks(reason: str, ranks: Iterable[int], *arguments: str) -> dict[str, Correction]:
    """Return corrections of numbers of dimensions."""
    return {name: Correction(reason=reason, ranks=frozenset(ranks)) for name in arguments}


# Names of lists are those of aclnn_*.cpp of the operator.
_ASCEND910B = "its list for DAV_2201 has others than the document"
_OUTPUT = "the result is checked against a list of its own"
_ABSENT = "no use is made of it, so that nothing is checked"
_DEFINED = "the document leaves it out; that of the definition of the kernel"
_NO_TYPES = "the document gives no dtypes; those the source checks"
_FUSED_INFER_ARGUMENTS = (
    *("deqScale1Optional", "quantScale1Optional", "deqScale2Optional", "quantScale2Optional"),
    *("quantOffset2Optional", "antiquantScaleOptional", "antiquantOffsetOptional"),
    *("blockTableOptional", "queryPaddingSizeOptional", "kvPaddingSizeOptional"),
    *("keyAntiquantScaleOptional", "keyAntiquantOffsetOptional", "valueAntiquantScaleOptional"),
    *("valueAntiquantOffsetOptional", "keySharedPrefixOptional", "valueSharedPrefixOptional"),
    *("key", "value"),
)
_ROTARY_ARGUMENTS = ("queryRopeOptional", "keyRopeOptional", "keyRopeAntiquantScaleOptional")
_COMBINE_ARGUMENTS = {
    "activationScaleOptional": "FLOAT",
    "weightScaleOptional": "FLOAT",
    "groupListOptional": "INT64",
}
_XLOGY = {"self": f"{_FLOATS} BOOL {_INTEGERS}", "other": f"{_FLOATS} BOOL {_INTEGERS}"}

CORRECTIONS: Final[Mapping[str, Mapping[str, Correction]]] = MappingProxyType(
    {
        "aclnnAbs": _types(_ASCEND910B, self="-COMPLEX32")
        | _types("has the dtype of self, float32 where that is complex64", out=_REALS),
        "aclnnAcos": _types(_ASCEND910B, input="+BF16", out="+BF16"),
        "aclnnInplaceAcos": _types(_ASCEND910B, inputRef="+BF16"),
        "aclnnAcosh": _types(
            _ASCEND910B, self=f"{_REALS} {_COMPLEX}", out=f"{_FLOATS} DOUBLE {_COMPLEX}"
        ),
        "aclnnInplaceAcosh": _types(_ASCEND910B, selfRef=f"{_FLOATS} DOUBLE {_COMPLEX}"),
        "aclnnAddmmWeightNz": {
            "out": Correction(
                reason="its row cannot be read; dtypeSupportList of aclnn_addmm.cpp",
                data_types=_FLOATS,
                ranks=frozenset({2}),
            )
        },
        "aclnnAdaptiveAvgPool3dBackward": _types(
            _ASCEND910B, gradOutput="+DOUBLE", self="+DOUBLE", out="+DOUBLE"
        ),
        "aclnnAddmv": _types(_OUTPUT, out="+BOOL"),
        "aclnnAny": _types(_OUTPUT, out="+UINT8"),
        "aclnnAscendQuantV3": _types(
            _ASCEND910B, x="+FLOAT16 +BF16", scale="+FLOAT16 +BF16", offset="+FLOAT16 +BF16"
        ),
        "aclnnAsin": _types(_ASCEND910B, self="+BF16", out="+BF16"),
        "aclnnAddRmsNormDynamicQuantV2": _any_rank(
            "torch_npu stands a scalar for a result that is not wanted",
            *("y1Out", "y2Out", "scale1Out", "scale2Out"),
        ),
        "aclnnDequantSwigluQuantV2": _types("the remark below the table", x="INT32 BF16"),
        "aclnnDivMods": _types(_ASCEND910B, self="+BF16", out="+BF16"),
        "aclnnInplaceDivMods": _types(_ASCEND910B, selfRef="+BF16"),
        "aclnnDynamicQuantV2": _types(
            "GROUP_INDEX_DTYPE_SUPPORT_LIST", groupIndexOptional="INT32 INT64"
        )
        | _any_rank("one scale a column without groups", "smoothScalesOptional"),
        "aclnnInplaceQuantScatter": _any_rank(
            "only that both have the same number is checked",
            *("selfRef", "updates", "quantScales", "quantZeroPoints"),
        ),
        "aclnnBatchNormReduce": _any_rank("torch_npu passes what batch_norm was given", "x"),
        "aclnnMoeDistributeCombine": _types(
            _DEFINED,
            xActiveMask="BOOL",
            activationScale="FLOAT",
            weightScale="FLOAT",
            groupList="INT64",
        ),
        "aclnnMoeDistributeCombineV2": _types(_DEFINED, **_COMBINE_ARGUMENTS),
        "aclnnMoeDistributeCombineV3": _types(
            _DEFINED, tpSendCountsOptional="INT32", **_COMBINE_ARGUMENTS
        ),
        "aclnnMoeDistributeDispatch": _types(_DEFINED, xActiveMask="BOOL"),
        "aclnnMoeInitRoutingV3": _any_rank(
            "[experts, capacity, columns] where surplus tokens are dropped", "expandedXOut"
        ),
        "aclnnQuantMatmulReduceSumWeightNz": _types(
            "an empty tensor stands for none as well",
            **dict.fromkeys(("yScale", "x1Offset", "x2Offset", "yOffset", "bias"), _EVERY),
        ),
        "aclnnWeightQuantBatchMatmulV2": _types(
            "torch_npu keeps scales of 64 bits in int64", quantScaleOptional="+INT64"
        ),
        "aclnnMinDim": _types("not checked; torch_npu asks for int64", indices="+INT64"),
        "aclnnSlogdet": _any_rank("has the batch dimensions of self alone", "signOut", "logOut"),
        "aclnnSvd": _any_rank("has one dimension less than self", "sigma"),
        "aclnnAsinh": _types(
            _ASCEND910B, input=f"{_REALS} {_COMPLEX}", out=f"{_FLOATS} DOUBLE {_COMPLEX}"
        ),
        "aclnnInplaceAsinh": _types(_ASCEND910B, inputRef=f"{_FLOATS} DOUBLE {_COMPLEX}"),
        "aclnnAtanh": _types(
            _ASCEND910B, input=f"{_REALS} {_COMPLEX}", out=f"{_FLOATS} DOUBLE {_COMPLEX}"
        ),
        "aclnnInplaceAtanh": _types(_ASCEND910B, inputRef=f"{_FLOATS} DOUBLE {_COMPLEX}"),
        "aclnnInplaceAsin": _types(_ASCEND910B, selfRef="+BF16"),
        "aclnnChannelShuffle": _types(_ASCEND910B, self="+BF16", out="+BF16"),
        "aclnnCosh": _types(
            _ASCEND910B, self=f"{_REALS} {_COMPLEX}", out=f"{_FLOATS} DOUBLE {_COMPLEX}"
        ),
        "aclnnInplaceCosh": _types(_ASCEND910B, selfRef=f"{_FLOATS} DOUBLE {_COMPLEX}"),
        "aclnnCumsum": _types("only the result is checked; self is cast to it", self="+BOOL"),
        "aclnnCtcLossBackward": _types(_ASCEND910B, targets="+BOOL +FLOAT +FLOAT16"),
        **{
            operator: _types("its definition for ascend910b lacks float32", x="-FLOAT")
            for operator in ("aclnnDynamicBlockQuant", "aclnnDynamicBlockQuantV2")
        },
        "aclnnElu": _types(_ASCEND910B, self="+DOUBLE", out="+DOUBLE"),
        "aclnnEmbeddingBag": _types(
            "INT_DTYPE_LIST_ALL; one of the two has to be int32 or int64",
            indices=_INTEGERS,
            offsets=_INTEGERS,
        ),
        "aclnnEqual": _types(_NO_TYPES, out="BOOL"),
        "aclnnErf": _types(_ASCEND910B, self="+BF16", out="+BF16"),
        "aclnnErfc": _types(_ASCEND910B, self="+BF16", out="+BF16"),
        "aclnnInplaceErf": _types(_ASCEND910B, selfRef="+BF16"),
        "aclnnInplaceErfc": _types(_ASCEND910B, selfRef="+BF16"),
        **{
            f"aclnnFlashAttention{form}": _types(
                _ABSENT, paddingMaskOptional=_EVERY, softmaxOutOut=_EVERY
            )
            | _any_rank(
                "packed sequences have one dimension less", "softmaxMaxOut", "softmaxSumOut"
            )
            for form in (
                "Score",
                "ScoreV2",
                "VarLenScore",
                "VarLenScoreV2",
                "VarLenScoreV3",
                "VarLenScoreV4",
            )
        },
        **{
            f"aclnnFlashAttention{form}": _types(
                _DEFINED, paddingMaskOptional=_FLOATS, softmaxInOptional=_FLOATS
            )
            for form in ("ScoreGrad", "ScoreGradV2")
        },
        **{
            f"aclnnFlashAttentionUnpaddingScoreGrad{version}": _types(
                _DEFINED, paddingMaskOptional=_FLOATS, softmaxInOptional=_FLOATS
            )
            | _any_rank(
                "packed sequences have one dimension less",
                *("softmaxMaxOptional", "softmaxSumOptional"),
            )
            | (_types("has to be absent", pseShiftOptional="") if version == "V3" else {})
            for version in ("", "V2", "V3", "V4")
        },
        **{
            operator: _types(
                "an empty tensor stands for none as well: CheckInputExistence",
                **dict.fromkeys(
                    ("yScaleOptional", "x1OffsetOptional", "x2OffsetOptional", "yOffsetOptional"),
                    _EVERY,
                ),
                x3Optional=_EVERY,
            )
            for operator in ("aclnnFusedQuantMatmul", "aclnnFusedQuantMatmulWeightNz")
        },
        **{
            f"aclnnFusedInferAttentionScoreV{version}": _any_rank(
                "the document writes 1 for whatever else it says of the shape",
                *_FUSED_INFER_ARGUMENTS,
                *(_ROTARY_ARGUMENTS if version == 3 else ()),
            )
            | {
                "softmaxLse": Correction(
                    reason=f"{_PLACEHOLDER}, and of any shape: the document writes 1",
                    data_types=_FLOATS,
                    ranks=ANY_RANK,
                )
            }
            for version in (2, 3)
        },
        "aclnnFusedInferAttentionScoreV4": _types(
            "the document points to its section on quantised keys",
            keyAntiquantOffsetOptional=_FLOATS,
            valueAntiquantOffsetOptional=_FLOATS,
            keyRopeAntiquantScaleOptional=_FLOATS,
        )
        | _types(_PLACEHOLDER, softmaxLse=_FLOATS),
        "aclnnGatherV3": _types(_ASCEND910B, self="+BF16 +COMPLEX128", out="+BF16 +COMPLEX128"),
        "aclnnGeScalar": _types(_ASCEND910B, self="-BOOL"),
        "aclnnGeTensor": _types(_ASCEND910B, self="-BOOL", other="-BOOL"),
        "aclnnInplaceGeTensor": _types(_ASCEND910B, selfRef="-BOOL", other="-BOOL"),
        "aclnnGroupNormSwish": _ranks("one value a channel, like gamma", (1,), "beta"),
        "aclnnGroupNormSwishGrad": _ranks(
            "have the shape of gamma, as the document says beside", (1,), "dgammaOut", "dbetaOut"
        ),
        "aclnnGroupedMatmulFinalizeRoutingV2": _types(
            "takes int32 alone, which it unpacks into int4", x2="INT32"
        ),
        "aclnnGroupedMatmulFinalizeRoutingWeightNz": _types(
            "SCALE_TYPE_SUPPORT_LIST; float32 in the combinations below the table",
            scale="+FLOAT +BF16",
        )
        | _types("BIAS_TYPE_SUPPORT_LIST, beside int8 matrices", bias="BF16"),
        "aclnnGroupedMatmulFinalizeRoutingWeightNzV2": _types(
            "int32 is unpacked into int4", x2="+INT32"
        ),
        "aclnnIndexFill": _types("DTYPE_INDEX_SUPPORT_LIST", index="INT32 INT64"),
        "aclnnInplaceIndexFill": _types("DTYPE_INDEX_SUPPORT_LIST", index="INT32 INT64"),
        "aclnnInplaceBernoulliTensor": _types(_ASCEND910B, selfRef="+BF16", prob="+BF16"),
        "aclnnInplaceDivMod": _types(
            _ASCEND910B, selfRef="+BF16", other="+BF16 +COMPLEX64 +COMPLEX128"
        ),
        "aclnnInplaceFillDiagonal": {
            "selfRef": Correction(
                reason="its list for ascend910b; OP_CHECK_MIN_DIM, above 2 all sizes are equal",
                data_types="-COMPLEX64",
                ranks=frozenset(range(2, 9)),
            )
        },
        "aclnnInplaceHardtanh": _types(
            "the row of the document lacks a cell", selfRef=f"{_FLOATS} DOUBLE {_INTEGERS}"
        ),
        "aclnnInplaceNeTensor": _types(
            "the rows of the document lack a cell",
            selfRef=f"{_REALS} {_COMPLEX}",
            other=f"{_REALS} {_COMPLEX}",
        ),
        "aclnnInplaceNormal": _types(
            "DTYPE_SUPPORT_LIST; integers are warned of",
            selfRef=_REALS,
        ),
        "aclnnInplaceScatterUpdate": _types(_ASCEND910B, data="-UINT8", updates="-UINT8"),
        "aclnnInplaceSin": _types(_ASCEND910B, selfRef="+DOUBLE +COMPLEX64 +COMPLEX128"),
        "aclnnInplaceUniformTensor": _types(
            "SEED_OFFSET_DTYPE_SUPPORT_LIST", seedTensor="+INT64", offsetTensor="+INT64"
        ),
        "aclnnInplaceXLogYScalarOther": _types(_NO_TYPES, selfRef=_XLOGY["self"]),
        "aclnnInverse": _types("DTYPE_SUPPORT_LIST", self=f"FLOAT16 FLOAT DOUBLE {_COMPLEX}")
        | _types(_OUTPUT, out=f"FLOAT16 FLOAT DOUBLE {_COMPLEX}"),
        "aclnnIsFinite": _types(_ASCEND910B, self=_REALS),
        "aclnnIsInScalarTensor": _types(
            _ASCEND910B, testElements="-BOOL -COMPLEX64 -COMPLEX128 -UINT16"
        ),
        "aclnnIsInTensorScalar": _types(
            _ASCEND910B, element="-BOOL -COMPLEX64 -COMPLEX128 -UINT16"
        ),
        "aclnnIsNegInf": _types(_ASCEND910B, self=f"{_FLOATS} BOOL {_INTEGERS}"),
        "aclnnIsPosInf": _types(_ASCEND910B, self=f"{_FLOATS} BOOL {_INTEGERS}"),
        "aclnnLeakyRelu": _types(_ASCEND910B, self="+DOUBLE", out="+DOUBLE"),
        "aclnnLinalgCholesky": _types(_ASCEND910B, self="+FLOAT16", out="+FLOAT16"),
        "aclnnLinspace": _types(_ASCEND910B, out="+INT64"),
        "aclnnLog10": _types("has the dtype of a floating point self", out="+DOUBLE"),
        "aclnnLogSpace": _any_rank(
            "one dimension of `steps`; dimensions are not checked", "result"
        ),
        "aclnnLSTM": _ranks(
            "[steps * batch, size] beside batchSizes: CheckDimsAndListLength", (2, 3), "input"
        ),
        "aclnnMaxPool2dWithIndicesBackward": _types(
            "has the dtype of self: CheckDtypeValid", gradInput="FLOAT"
        ),
        "aclnnLogSigmoidForward": _types(_ABSENT, buffer=_EVERY),
        "aclnnNeTensor": _types(_ASCEND910B, self="-UINT64", other="-UINT64")
        | _types(_OUTPUT, out=f"{_REALS} {_COMPLEX}"),
        "aclnnInplacePowTensorScalar": _types("DTYPE_SUPPORT_LIST", self="+BOOL"),
        "aclnnInplacePowTensorTensor": _types("DTYPE_SUPPORT_LIST", self="+BOOL", exponent="+BOOL"),
        **{
            operator: _types("not of this product", yScale="")
            | _types("torch_npu stands an empty tensor for it", x1Offset=_EVERY, yOffset=_EVERY)
            | _any_rank("has the batch dimensions of both matrices", "out")
            for operator in ("aclnnQuantMatmulV5", "aclnnQuantMatmulWeightNz")
        },
        "aclnnRelu": _types("DTYPE_SUPPORT_LIST_INCLUDE_BF16", self="+UINT8", out="+UINT8"),
        "aclnnRemainderTensorTensor": _types(
            "only the dtype that both promote to is checked, and that neither is complex",
            self=_REALS,
            other=_REALS,
        ),
        "aclnnScatterNdUpdate": _types(
            _ASCEND910B, varRef="+INT16 +INT32", updates="+INT16 +INT32"
        ),
        "aclnnSigmoid": _types(
            "DTYPE_SUPPORT_LIST and DTYPE_OUT_LIST",
            self=f"{_REALS} {_COMPLEX}",
            out=f"{_FLOATS} DOUBLE {_COMPLEX}",
        ),
        "aclnnSignbit": _types(_OUTPUT, out=f"{_REALS} UINT16 UINT32 UINT64"),
        "aclnnTanh": _types(
            "the result is checked with the list of self", out=f"{_FLOATS} BOOL {_INTEGERS}"
        ),
        "aclnnTopKTopPSample": _ranks(
            "has the shape of logits: CheckOpOutputShape of the tiling", (2,), "logitsTopKPSelect"
        ),
        "aclnnTopKTopPSampleV2": _ranks(
            "one value a row: CheckOpInputShape of the tiling", (1,), "minPs"
        )
        | _any_rank(
            "looked at where it is wanted alone: CheckOpOutputShape of the tiling",
            *("logitsSelectIdx", "logitsTopKPSelect", "logitsIdx", "logitsSortMasked"),
        ),
        "aclnnTril": _types(_ASCEND910B, self="-COMPLEX32 -COMPLEX64", out="-COMPLEX32 -COMPLEX64"),
        "aclnnTriu": _types(_ASCEND910B, self="-COMPLEX32 -COMPLEX64", out="-COMPLEX32 -COMPLEX64"),
        "aclnnUniqueDim": _types(
            "has the dtype of self", valueOut=f"{_REALS} UINT16 UINT32 UINT64"
        ),
        "aclnnVarMean": _types(
            "bfloat16 is in the list of later products alone",
            self="-BF16",
            varOut="-BF16",
            meanOut="-BF16",
        ),
        "aclnnXLogYScalarOther": _types(_NO_TYPES, self=_XLOGY["self"], out=_REALS),
        "aclnnXLogYScalarSelf": _types(_NO_TYPES, other=_XLOGY["other"], out=_REALS),
        "aclnnXLogYTensor": _types(_NO_TYPES, **_XLOGY, out=_REALS),
    }
)
"""By operator and argument."""

ADDED: Final[Mapping[str, Mapping[str, Argument]]] = MappingProxyType(
    {
        "aclnnFusedInferAttentionScoreV4": {
            "attentionOut": Argument(name="learnableSink", data_types=frozenset({"BF16"})),
        },
    }
)
"""Arguments that a document does not have yet, by operator and the argument that follows them."""
