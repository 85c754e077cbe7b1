"""The tables against rows that were read by eye in the documents, of the operators most used."""

from __future__ import annotations

import pytest

from operators.documented_table import documented_operators

HALVES = "FLOAT16 BF16"
FLOATS = f"{HALVES} FLOAT"
INTEGERS = "INT8 INT16 INT32 INT64 UINT8"
REALS = f"{FLOATS} DOUBLE {INTEGERS} BOOL"
ALL = f"{REALS} COMPLEX64 COMPLEX128"
UNSIGNED = "UINT16 UINT32 UINT64"
INDICES = "INT32 INT64"

ROWS_READ_BY_EYE: tuple[tuple[str, str, str, int, int], ...] = (
    ("aclnnAdd", "self", ALL, 0, 8),
    ("aclnnAdd", "out", ALL, 0, 8),
    ("aclnnInplaceAdd", "self", ALL, 0, 8),
    ("aclnnMul", "other", ALL, 0, 8),
    ("aclnnDiv", "out", ALL, 0, 8),
    ("aclnnSub", "self", ALL, 0, 8),
    ("aclnnCos", "self", ALL, 0, 8),
    ("aclnnCos", "out", f"{FLOATS} DOUBLE COMPLEX64 COMPLEX128", 0, 8),
    ("aclnnExp", "self", f"{FLOATS} DOUBLE INT64 BOOL COMPLEX64 COMPLEX128", 0, 8),
    ("aclnnSilu", "self", FLOATS, 0, 8),
    ("aclnnGelu", "out", FLOATS, 0, 8),
    ("aclnnMatmul", "mat2", FLOATS, 1, 6),
    ("aclnnAddmm", "mat1", FLOATS, 2, 2),
    ("aclnnBatchMatMul", "self", FLOATS, 3, 3),
    ("aclnnMatmulWeightNz", "self", FLOATS, 2, 2),
    ("aclnnRmsNorm", "x", FLOATS, 1, 8),
    ("aclnnRmsNorm", "rstdOut", "FLOAT", 1, 8),
    ("aclnnAddRmsNorm", "x2", FLOATS, 1, 8),
    ("aclnnLayerNorm", "weight", FLOATS, 1, 8),
    ("aclnnGroupNorm", "gamma", FLOATS, 1, 1),
    ("aclnnSoftmax", "self", f"{FLOATS} DOUBLE", 0, 8),
    ("aclnnCast", "self", f"{ALL} {UNSIGNED}", 0, 8),
    ("aclnnInplaceCopy", "src", f"{ALL} {UNSIGNED}", 0, 8),
    ("aclnnIndex", "self", REALS, 0, 8),
    ("aclnnIndex", "indices", f"{INDICES} BOOL", 0, 8),
    ("aclnnIndexPutImpl", "selfRef", REALS, 0, 8),
    ("aclnnScatter", "src", ALL, 0, 8),
    ("aclnnScatter", "index", INDICES, 0, 8),
    ("aclnnScatterAdd", "self", ALL, 0, 8),
    ("aclnnGather", "self", f"{REALS} {UNSIGNED}", 0, 8),
    ("aclnnIndexSelect", "self", f"{ALL} {UNSIGNED}", 0, 8),
    ("aclnnEmbedding", "weight", ALL, 2, 2),
    ("aclnnEmbedding", "indices", INDICES, 0, 8),
    ("aclnnTopk", "self", f"{FLOATS} DOUBLE {INTEGERS}", 1, 8),
    ("aclnnTopk", "indicesOut", "INT64", 1, 8),
    ("aclnnSort", "self", f"{FLOATS} {INTEGERS} BOOL", 0, 8),
    ("aclnnSwiGlu", "x", FLOATS, 0, 8),
    ("aclnnQuantMatmulV5", "x1", "INT4 INT8 INT32", 2, 6),
    ("aclnnQuantMatmulV5", "x2Scale", "UINT64 INT64 FLOAT BF16", 1, 7),
    ("aclnnQuantMatmulV5", "out", f"{FLOATS} INT8 INT32", 0, 8),
    ("aclnnWeightQuantBatchMatmulV2", "x", HALVES, 2, 2),
    ("aclnnDynamicQuantV2", "x", HALVES, 2, 8),
    ("aclnnDynamicQuantV2", "y", "INT4 INT8 INT32", 2, 8),
    ("aclnnArgMax", "out", INDICES, 0, 8),
    ("aclnnCat", "tensors", f"{REALS} COMPLEX64", 0, 8),
    ("aclnnBitwiseAndTensor", "self", f"{INTEGERS} UINT16 BOOL", 0, 8),
    ("aclnnEqTensor", "other", ALL, 0, 8),
    ("aclnnMaxDim", "self", f"{FLOATS} INT64 BOOL", 0, 8),
    ("aclnnNonzero", "self", REALS, 0, 8),
    ("aclnnMultinomial", "self", f"{FLOATS} DOUBLE", 0, 8),
    ("aclnnFusedInferAttentionScoreV3", "query", f"{HALVES} INT8", 3, 4),
    ("aclnnFusedInferAttentionScoreV3", "key", f"{HALVES} INT8 INT4 INT32", 0, 8),
    ("aclnnFusedInferAttentionScoreV3", "blockTable", "INT32", 0, 8),
    ("aclnnFusedInferAttentionScoreV4", "attenMask", "BOOL INT8 UINT8", 0, 8),
    ("aclnnApplyRotaryPosEmb", "queryRef", FLOATS, 4, 4),
    ("aclnnMoeGatingTopK", "expertIdxOut", "INT32", 0, 8),
)


@pytest.mark.parametrize("row", ROWS_READ_BY_EYE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_row_is_the_one_of_the_document(row: tuple[str, str, str, int, int]) -> None:
    operator, argument, data_types, least, most = row
    found = next(r for r in documented_operators()[operator] if r.name == argument)
    assert found.data_types == frozenset(data_types.split())
    assert (min(found.ranks), max(found.ranks)) == (least, most)
