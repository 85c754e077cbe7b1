"""Views, casts and copies that change nothing, and pairs of views that make one."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from fx_passes.matching.combined_pattern import calling, combine, result
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.requirements import is_dense, shapes_equal, sizes_equal
from fx_passes.memory import needs_contiguous
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Check, Pattern, Rewrite


class _Limits(NamedTuple):
    """What a dtype has; it holds the values of those that have no more of anything.

    Of a complex dtype, what each of its two parts has.

    Attributes:
        digits: Binary digits of the significand; of an integer, those of its largest magnitude.
        smallest: Less the smallest positive value.
        largest: The largest one.
        lowest: Less the most negative one, 0 where there is none.
        zero: Whether 0 is a value.
        signed_zero: Whether -0 is one beside it.
        infinity: Whether infinities are values.
        nan: Whether NaN is.
        two_parts: Whether it is complex.
    """

    digits: int
    smallest: float
    largest: float
    lowest: float
    zero: bool = True
    signed_zero: bool = False
    infinity: bool = False
    nan: bool = False
    two_parts: bool = False


_INTEGERS = frozenset(
    {
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    }
)
# Binary digits of the significand, the implicit one included; `torch.finfo` of torch 2.13 gives too
# small an `eps` for float8_e5m2fnuz.
_DIGITS = MappingProxyType(
    {
        torch.float64: 53,
        torch.float32: 24,
        torch.float16: 11,
        torch.bfloat16: 8,
        torch.float8_e5m2: 3,
        torch.float8_e5m2fnuz: 3,
        torch.float8_e4m3fn: 4,
        torch.float8_e4m3fnuz: 4,
    }
)
# Floats of eight bits that have NaN and no infinity.
_FINITE = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def holds_every_value(wide: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether a cast of any value of `dtype` to `wide` and back gives that value.

    NaN counts as one value. Nothing is known of dtypes that are packed, quantised or bits.
    """
    if wide is dtype:
        return True
    values, held = _limits(dtype), _limits(wide)
    if values is None or held is None:
        return False
    if dtype is torch.bool:
        # What is not zero is True again.
        return held.zero
    # Casting to bool asks whether a value is zero.
    return wide is not torch.bool and all(
        has >= wanted for has, wanted in zip(held, values, strict=True)
    )


def _limits(dtype: torch.dtype) -> _Limits | None:
    if dtype is torch.bool:
        return _Limits(1, smallest=-1, largest=1, lowest=0)
    if dtype in _INTEGERS:
        limits = torch.iinfo(dtype)
        digits = max(limits.max, -limits.min - 1).bit_length()
        return _Limits(digits, smallest=-1, largest=limits.max, lowest=-limits.min)
    if dtype is torch.float8_e8m0fnu:
        # Powers of two, without a zero or a sign.
        return _Limits(1, smallest=-(2.0**-127), largest=2.0**127, lowest=0, zero=False, nan=True)
    real = dtype.to_real() if dtype.is_complex else dtype
    if real not in _DIGITS:
        return None
    floats, digits = torch.finfo(real), _DIGITS[real]
    return _Limits(
        digits,
        # The smallest subnormal number.
        smallest=-floats.smallest_normal * 2.0 ** (1 - digits),
        largest=floats.max,
        lowest=-floats.min,
        signed_zero=not str(real).endswith("fnuz"),
        infinity=real not in _FINITE,
        nan=True,
        two_parts=dtype.is_complex,
    )


aten = torch.ops.aten


def _reshape_of_copy(x: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
    """AOTAutograd's form of a reshape that has to copy."""
    copy = torch.ops.aten.clone(x, memory_format=torch.contiguous_format)
    return {"y": torch.ops.aten.reshape(copy, shape)}


def _unsqueeze_squeeze(x: Tensor, dim: int) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.squeeze.dim(torch.ops.aten.unsqueeze(x, dim), dim)}


def _transpose_twice(x: Tensor, first: int, second: int) -> dict[str, Tensor]:
    once = torch.ops.aten.transpose.int(x, first, second)
    return {"y": torch.ops.aten.transpose.int(once, first, second)}


def _copying_cast(x: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    copied: Tensor = torch.ops.aten._to_copy.default(x, dtype=dtype)  # noqa: SLF001 - its name
    return {"y": copied}


def _cat_of_one(x: Tensor, dim: int) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.cat([x], dim)}


def _times_one(x: Tensor) -> dict[str, Tensor]:
    """AOTAutograd's form of the numerator of `1 / x`."""
    return {"y": x * 1}


def _copying_cast_forth_and_back(
    x: Tensor, wide: torch.dtype, dtype: torch.dtype
) -> dict[str, Tensor]:
    cast = torch.ops.aten._to_copy.default  # noqa: SLF001 - the name of the operator
    return {"y": cast(cast(x, dtype=wide), dtype=dtype)}


def _nothing_changes(match: Match) -> NoMatch | None:
    """Return the changes of a view, cast or copy besides the memory."""
    x, y = match.tensor("x"), match.tensor("y")
    if x.dtype != y.dtype or not shapes_equal(x.shape, y.shape):
        return NoMatch(f"{list(x.shape)} {x.dtype} becomes {list(y.shape)} {y.dtype}")
    # Also those of dimensions of size one, which operators and callers may read.
    if not shapes_equal(x.stride(), y.stride()) or x.device != y.device:
        return NoMatch(f"the strides {list(x.stride())} become {list(y.stride())}")
    return None


def _product_is_its_factor(match: Match) -> NoMatch | None:
    if match.tensor("x").is_complex():
        return NoMatch("the product of a complex infinity and one is not that infinity")
    return _nothing_changes(match)


def _laid_out_as_before(match: Match) -> NoMatch | None:
    """Return why one reshape might return another layout than the operators it replaces.

    A reshape of a non-contiguous tensor returns a view if possible, and of a contiguous copy it
    returns contiguous values: a later `view` of the result may only fit the latter.
    """
    views = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}  # noqa: SLF001
    x, y = match.tensor("x"), match.tensor("y")
    if is_dense(x) or all(node.target in views for node in match.nodes):
        return None
    if all(isinstance(size, int) for size in (*x.shape, *x.stride(), *y.shape)):
        one = torch.empty_strided(x.shape, x.stride(), device="meta").reshape(y.shape)
        triples = zip(y.shape, one.stride(), y.stride(), strict=True)
        if all(size == 1 or ours == theirs for size, ours, theirs in triples):
            return None
    user = needs_contiguous(match.outputs["y"], match.effects)
    if user is None:
        return None
    return NoMatch(f"one reshape may lay out otherwise what reaches `{user.name}`", (user,))


def _every_value_comes_back(match: Match) -> NoMatch | None:
    wide = match.bound["wide"]
    if not isinstance(wide, torch.dtype) or not holds_every_value(wide, match.tensor("x").dtype):
        return NoMatch(f"{wide} does not hold every value")
    return _nothing_changes(match)


def _input(match: Match, build: GraphBuilder) -> dict[str, Node]:
    del build
    return {"y": match.node("x")}


def _one_reshape(match: Match, build: GraphBuilder) -> dict[str, Node]:
    x, y = match.tensor("x"), match.tensor("y")
    # A reshape of what is not contiguous may be a view, laid out otherwise than the copy was.
    as_before = is_dense(x) and sizes_equal(x.storage_offset(), y.storage_offset())
    # `reinplace` writes through a view, but not through what may be a copy.
    never_copies = is_dense(x) or shapes_equal(x.shape, y.shape)
    operator = "aten::view" if never_copies else "aten::reshape"
    arguments = match.arguments("x", "shape")
    return {"y": build.call(operator, *arguments, val=y if as_before else None)}


def remove_noops() -> tuple[Rule, ...]:
    """Return the rules that remove operators that only cost host time.

    A reshape, expansion, slice or cast whose result is its input; a copy that nobody writes and
    that stays in the graph; a product with one; a cast to a dtype that can represent every value,
    and back; `cat` of one tensor; `squeeze` after `unsqueeze`; a transposition done twice; the
    first of two reshapes, or the copy that AOTAutograd or a model inserts before one. All are
    exact, and no user can distinguish the results (`substitution_problem`). Places where the result
    differs are not near misses.
    """
    first = calling(aten.reshape.default, first="Sequence[int]")
    reshape = calling(aten.reshape.default, shape="Sequence[int]")
    wide, to = (calling(aten.to.dtype, **{name: "dtype"}) for name in ("wide", "dtype"))
    contiguous, copy = calling(aten.contiguous.default), calling(aten.clone.default)
    expand = calling(aten.expand.default, shape="Sequence[int]")
    cut = calling(aten.slice.Tensor, dim="int", start="int | None", end="int | None", step="int")
    twice = combine(first, reshape, result)
    copied = (_reshape_of_copy, combine(contiguous, reshape, result))
    casts = (combine(wide, to, result), _copying_cast_forth_and_back)
    return (
        _rule("merge_reshapes", (twice,), _laid_out_as_before, _one_reshape),
        _rule("merge_copy_and_reshape", copied, _laid_out_as_before, _one_reshape),
        _rule("remove_reshape", (combine(reshape, result),)),
        _rule("remove_expand", (combine(expand, result),)),
        _rule("remove_slice", (combine(cut, result),)),
        _rule("remove_cast", (combine(to, result),)),
        _rule("remove_unsqueeze_squeeze", (_unsqueeze_squeeze,)),
        _rule("remove_double_transpose", (_transpose_twice,)),
        _rule("remove_contiguous", (combine(contiguous, result),)),
        _rule("remove_copy", (combine(copy, result), _copying_cast, _cat_of_one)),
        _rule("remove_product_with_one", (_times_one,), _product_is_its_factor),
        _rule("remove_double_cast", casts, _every_value_comes_back),
    )


def remove_double_reciprocal() -> Rule:
    """Return the rule `1 / (1 / x)` to `x`.

    As rewrites leave it that invert a scale which an engine had inverted. Each reciprocal is
    rounded, so the numerics are `rounding`.
    """
    inverse = calling(aten.reciprocal.default)
    pattern = combine(inverse, inverse, result)
    return replace(_rule("remove_double_reciprocal", (pattern,)), numerics="rounding")


def _rule(
    name: str,
    patterns: tuple[Pattern, ...],
    check: Check = _nothing_changes,
    rewrite: Rewrite = _input,
) -> Rule:
    return Rule(
        name=name,
        patterns=patterns,
        check=check,
        rewrite=rewrite,
        shares_memory=True,
        reports_near_misses=False,
    )
