"""Rotary position embeddings, raised to `npu::npu_rotary_mul`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.fusions.halves import slices_problem
from fx_passes.fusions.quantized import cast
from fx_passes.graph_argument import literals_equal
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import (
    dtype_in,
    on_npu,
    same_dtype,
    same_shape,
    shapes_equal,
    sizes_equal,
)
from fx_passes.raising.memory_layout import dense_like, layout_problem
from fx_passes.raising.rotary.spellings import ROTATIONS
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


# Of aclnnRotaryPositionEmbedding: [batch, heads, sequence, dim] in any order of the middle two.
_RANK = 4
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def _check(match: Match) -> NoMatch | None:
    if "complex" in match.labels:
        return _complex_problem(match) or layout_problem(match, "y")
    if "halved" in match.labels:
        return _halved_problem(match) or layout_problem(match, "y")
    return (
        on_npu(match, "x")
        or dtype_in(match, "x", *_DTYPES)
        or same_shape(match, "x", "y", "rotated")
        or same_shape(match, "cos", "sin")
        or same_dtype(match, "cos", "sin")
        or _parts_problem(match)
        or _dtype_problem(match, "x", "cos")
        or _angles_problem(match, "x", "cos")
        or layout_problem(match, "y")
    )


def _parts_problem(match: Match) -> NoMatch | None:
    """Return why the rotated parts are not halves, or neighbours, of the last dimension."""
    bound, x = match.bound, match.tensor("x")
    rank, size = x.dim(), x.shape[-1]
    for name in ("dim", "cat_dim"):
        if name in bound and bound[name] not in {-1, rank - 1}:
            return NoMatch(f"the halves are along dimension {bound[name]} of {rank}, not the last")
    if bound.get("stack_dim", -1) not in {-1, rank}:
        return NoMatch(
            f"neighbours are stacked along dimension {bound['stack_dim']} of {rank + 1}, not "
            "the last"
        )
    if not _is_even(size):
        return NoMatch(f"the last dimension must be an even number, found {size}")
    half = size // 2
    parts = bound["sizes"] if "sizes" in bound else bound.get("size", half)
    if not literals_equal(parts, [half, half] if "sizes" in bound else half):
        return NoMatch(f"parts of {parts} are not the halves of {size}")
    return slices_problem(bound, size)


def _is_even(size: object) -> bool:
    return isinstance(size, int) and size % 2 == 0


def _dtype_problem(match: Match, x: str, cos: str) -> NoMatch | None:
    """Return why the products are not computed in the dtype of the kernel's inputs."""
    rotated, angles, y = map(match.tensor, (x, cos, "y"))
    if rotated.dtype == angles.dtype == y.dtype:
        return None
    # A product in float32 casts its operands, and so does the rewrite.
    if y.dtype == torch.float32 and {rotated.dtype, angles.dtype} <= set(_DTYPES):
        return None
    return NoMatch(
        f"`{x}` has dtype {rotated.dtype}, `{cos}` {angles.dtype} and the result {y.dtype}; the "
        "kernel takes and gives one dtype"
    )


def _angles_problem(match: Match, x: str, cos: str, *, share: int = 1) -> NoMatch | None:
    """Return why the kernel cannot broadcast the cosines, one for each `share` elements, over x."""
    rotated, angles = match.tensor(x), match.tensor(cos)
    if rotated.dim() not in {_RANK - 1, _RANK}:
        return NoMatch(
            f"`{x}` has {rotated.dim()} dimensions; the kernel takes {_RANK}, to which one can be "
            "added"
        )
    sizes = [*[1] * (rotated.dim() - angles.dim()), *angles.shape]
    pairs = list(zip(sizes, rotated.shape, strict=False))
    fits = len(sizes) == rotated.dim() and all(
        sizes_equal(mine, 1) or sizes_equal(mine, theirs) for mine, theirs in pairs[:-1]
    )
    if not fits or not sizes_equal(angles.shape[-1] * share, rotated.shape[-1]):
        return NoMatch(
            f"`{cos}` has shape {list(angles.shape)} and `{x}` {list(rotated.shape)}; the kernel "
            "takes 1 or the same size in each dimension, and the same in the last"
        )
    return None


def _halved_problem(match: Match) -> NoMatch | None:
    unmet = (
        on_npu(match, "first")
        or dtype_in(match, "first", *_DTYPES)
        or same_shape(match, "first", "second")
        or same_dtype(match, "first", "second")
        or same_shape(match, "cos", "sin")
        or same_dtype(match, "cos", "sin")
    )
    if unmet is not None:
        return unmet
    first, y = match.tensor("first"), match.tensor("y")
    if match.bound["cat_dim"] not in {-1, y.dim() - 1}:
        return NoMatch(
            f"the halves are along dimension {match.bound['cat_dim']} of {y.dim()}, not the last"
        )
    if y.dim() != first.dim() or not sizes_equal(first.shape[-1] * 2, y.shape[-1]):
        return NoMatch(f"halves of shape {list(first.shape)} make one of {list(y.shape)}")
    return _dtype_problem(match, "first", "cos") or _angles_problem(match, "first", "cos")


def _complex_problem(match: Match) -> NoMatch | None:
    unmet = (
        on_npu(match, "x")
        or dtype_in(match, "x", torch.float32)
        or dtype_in(match, "angles", torch.complex64)
        or same_shape(match, "x", "y")
    )
    if unmet is not None:
        return unmet
    x, pairs = match.tensor("x"), match.tensor("complex")
    size = x.shape[-1]
    expected = (*x.shape[:-1], size // 2, 2)
    if not _is_even(size):
        return NoMatch(f"the last dimension must be pairs of numbers, found {list(pairs.shape)}")
    if not shapes_equal(pairs.shape, expected):
        return NoMatch(f"pairs of shape {list(pairs.shape)}, expected {list(expected)}")
    return _angles_problem(match, "x", "angles", share=2)


def _rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
    y, labels = match.tensor("y"), match.labels
    if "complex" in labels:
        x, (cos, sin) = match.node("x"), _of_complex(match.node("angles"), build)
    elif "halved" in labels:
        x = build.call("aten::cat", match.arguments("first", "second"), -1)
        cos, sin = (build.call("aten::cat", [match.node(name)] * 2, -1) for name in ("cos", "sin"))
    else:
        x, cos, sin = map(match.node, ("x", "cos", "sin"))
    if "backwards" in labels:
        sin = build.call("aten::neg", sin)
    # All in the dtype of the result, and in four dimensions.
    inputs = [_four_dimensions(cast(each, y.dtype, build), build) for each in (x, cos, sin)]
    mode = "interleave" if "complex" in labels or "stack_dim" in match.bound else "half"
    known = dense_like(y)
    if y.dim() == _RANK:
        return {"y": build.call("npu::npu_rotary_mul", *inputs, mode, val=known)}
    rotated = build.call("npu::npu_rotary_mul", *inputs, mode, val=known.unsqueeze(0))
    return {"y": build.call("aten::squeeze.dim", rotated, 0)}


def _of_complex(angles: Node, build: GraphBuilder) -> list[Node]:
    """Return cosines and sines, each twice, of complex numbers."""
    parts = build.call("aten::view_as_real", angles)
    chosen = [build.call("aten::select.int", parts, -1, position) for position in range(2)]
    doubled = [build.call("aten::stack", [each, each], -1) for each in chosen]
    return [build.call("aten::flatten.using_ints", each, -2, -1) for each in doubled]


def _four_dimensions(node: Node, build: GraphBuilder) -> Node:
    """Return a value with dimensions of size 1 in front."""
    for _ in range(_RANK - node.meta["val"].dim()):
        node = build.call("aten::unsqueeze", node, 0)
    return node


def raise_rotary() -> Rule:
    """Return the rule `x * cos + rotated * sin` to `npu_rotary_mul`.

    x has 3 or 4 dimensions. One operator for q and one for k; a partial RoPE is raised on the part
    that is rotated. Every order of the products and of the sum, and these spellings:

    - `cat(-x2, x1)` of the halves of the last dimension, by slices, `chunk` or `split` (Llama);
    - the same backwards, `cat(x2, -x1)` (NanoChat): the sines are negated;
    - neighbours, `stack(-x[1::2], x[::2])` (Cohere, GLM, Ernie): the kernel's mode `interleave`;
    - `cat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`, with cosines of half the size (GPT-OSS,
      DeepSeek V3): they are doubled;
    - a product of complex numbers (Llama 4, DeepSeek V2).

    Float32 cosines with x in 16 bits make a product in float32 (OLMo 2 and 3): x is cast, as the
    product does, and the cast of the result stays as the model spells it. What is made of cosines
    and sines is the same for all layers; `ShareEqualCallsPass` leaves it once.

    In 16 bits the torch operators round both products before they add, the kernel rounds once: the
    numerics are `rounding`. Source of the limits: aclnnRotaryPositionEmbedding takes float32,
    float16 and bfloat16 of 4 dimensions.
    """
    return Rule(
        accepts_cost=True,
        name="raise_rotary",
        patterns=ROTATIONS,
        check=_check,
        rewrite=_rewrite,
        operators=("npu::npu_rotary_mul",),
        numerics="rounding",
    )
