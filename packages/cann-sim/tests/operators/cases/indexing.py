"""Sorting, shapes, and reading and writing by index."""

from __future__ import annotations

from typing import Any

import torch
import torch_npu
from torch.nn import functional

from operators.operator_case import (
    FLOATS,
    INTEGERS,
    SINGLE,
    Case,
    Indices,
    Values,
    elementwise,
    fixed,
)

ROWS = fixed(((6, 3), (4,)), ((6, 1), (1,)), ((6, 5), (0,)))
WHOLE = Values(low=0, high=4)
SMALL = (torch.int32, torch.int64)


def bag(weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    offsets = torch.tensor([0, 2], device=weight.device)
    return functional.embedding_bag(indices, weight, offsets, mode="mean")


def embedding_gradient(grad: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.ops.aten.embedding_dense_backward(grad, indices, 6, -1, False)


def filled(values: torch.Tensor) -> torch.Tensor:
    return values.clone().fill_diagonal_(7.0)


def scattered(
    values: torch.Tensor, updates: torch.Tensor, indices: torch.Tensor
) -> list[torch.Tensor]:
    return [
        torch.scatter_reduce(
            values, 0, indices, updates, mode, include_self=own, out=torch.empty_like(values)
        )
        for mode in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ]


CASES = (
    Case(
        operator="aclnnScatterReduce",
        call=scattered,
        inputs=(Values(), Values(), Indices(below=4)),
        shapes=fixed(((4, 3), (5, 3), (5, 3)), ((4, 3), (2, 1), (2, 1)), ((4,), (9,), (9,))),
        dtypes=SINGLE,
        ulps=64,
        magnitude=512,
    ),
    Case(
        operator="aclnnHistc",
        call=lambda x: torch.histc(x, 5, -2.0, 2.0),
        shapes=elementwise(1, least_rank=1),
        dtypes=SINGLE,
    ),
    Case(
        operator="aclnnUniqueConsecutive",
        call=lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        inputs=(WHOLE,),
        shapes=fixed(((7,),), ((3, 4),), ((1,),)),
        dtypes=(*SMALL, torch.float32),
    ),
    Case(
        operator="aclnnUniqueDim",
        call=lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        inputs=(Values(low=0, high=1),),
        shapes=fixed(((7, 2),), ((1, 3),)),
        dtypes=(*SMALL,),
    ),
    Case(
        operator="aclnnRepeatInterleaveTensor",
        call=torch.repeat_interleave,
        inputs=(WHOLE,),
        shapes=fixed(((5,),), ((1,),)),
        dtypes=SMALL,
    ),
    Case(
        operator="aclnnChannelShuffle",
        call=lambda x: torch.channel_shuffle(x, 2),
        shapes=fixed(((2, 4, 3),), ((1, 6, 2, 2),)),
    ),
    Case(
        operator="aclnnChunkCat",
        call=lambda x: torch._chunk_cat([x, x * 2], 0, 2),
        shapes=fixed(((4, 3),), ((5, 2),)),
    ),
    Case(
        operator="aclnnInplaceFillDiagonal",
        call=filled,
        shapes=fixed(((3, 4),), ((4, 4),), ((1, 1),), ((3, 3, 3),)),
    ),
    Case(
        operator="aclnnIm2col",
        call=lambda x: functional.unfold(x, (2, 3), dilation=1, padding=1, stride=2),
        shapes=fixed(((2, 3, 4, 5),), ((1, 1, 2, 3),)),
    ),
    Case(
        operator="aclnnIm2colBackward",
        call=lambda x: functional.fold(x, (4, 5), (2, 2)),
        shapes=fixed(((2, 8, 12),), ((1, 4, 12),)),
        magnitude=8,
    ),
    Case(
        operator="aclnnUnfoldGrad",
        call=lambda g: torch.ops.aten.unfold_backward(g, [5, 2], 0, 3, 1),
        shapes=fixed(((3, 2, 3),)),
        magnitude=8,
    ),
    Case(
        operator="aclnnEmbeddingBag",
        call=bag,
        inputs=(Values(), Indices(below=6)),
        shapes=fixed(((6, 3), (5,)), ((6, 1), (3,))),
    ),
    Case(
        operator="aclnnEmbeddingDenseBackward",
        call=embedding_gradient,
        inputs=(Values(), Indices(below=6)),
        shapes=fixed(((4, 3), (4,)), ((1, 1), (1,)), ((2, 5, 2), (2, 5))),
        magnitude=16,
    ),
    Case(
        operator="aclnnEmbeddingRenorm",
        call=lambda w, i: torch.embedding_renorm_(w.clone(), i, 1.0, 2.0),
        inputs=(Values(), Indices(below=6)),
        shapes=ROWS,
        magnitude=4,
    ),
    Case(
        operator="aclnnInplacePut",
        call=lambda x, s: x.clone().put_(torch.tensor([5, 0, 2], device=x.device), s),
        inputs=(Values(), Values()),
        shapes=fixed(((2, 3), (3,)), ((6,), (3,))),
        dtypes=(*FLOATS, *INTEGERS),
    ),
    Case(
        operator="aclnnIndexAddV2",
        call=lambda x, s: torch.ops.npu._npu_index_add(
            x, torch.tensor([3, 0, 3], device=x.device), s
        ),
        reference=lambda x, s: x.index_add(0, torch.tensor([3, 0, 3]), s),
        inputs=(Values(), Values()),
        shapes=fixed(((4, 2), (3, 2)), ((4, 1, 2), (3, 1, 2))),
        magnitude=8,
    ),
    Case(
        operator="aclnnGatherV3",
        call=torch_npu.npu_gather_sparse_index,
        reference=lambda x, i: x[i],
        inputs=(Values(), Indices(below=6)),
        shapes=ROWS,
    ),
)
