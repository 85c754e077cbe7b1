"""When two results of the same computation count as equal."""

from __future__ import annotations

import math

import torch

from fx_passes.torch_internals import tree_flatten


def tolerance_of(dtype: torch.dtype, *, roundings: int) -> float:
    """Return the relative difference that a number of roundings can make.

    Each rounding to a floating-point type with machine epsilon e (the distance from 1 to the next
    number) changes a value by at most e / 2, so that many of them differ by `roundings * e / 2`
    from none, and by twice that from as many others.

    Args:
        dtype: The type of the values.
        roundings: How many roundings one side makes more than the other.
    """
    return roundings * torch.finfo(dtype).eps


def assert_same_values(
    actual: object, expected: object, *, roundings: int = 0, dtype: torch.dtype | None = None
) -> None:
    """Check that two results, nested alike, hold the same values.

    Values in int8 are taken to be quantised where there are roundings before: a relative difference
    d before the quantisation is one of `d * |value|` steps, so values may differ by that, rounded
    up, and as many of them may differ as the sum of it over all values says, plus four standard
    deviations: a value that moves by a part of a step crosses to the next with that probability.

    Args:
        actual: Tensors, on any device, in tuples, lists or dicts.
        expected: The same.
        roundings: 0 for the same bits; else see `tolerance_of`. Differences are measured against
            the largest value of the tensor, as sums may cancel.
        dtype: In which type the roundings happen; that of each tensor if None.

    Raises:
        AssertionError: Structure, dtype, shape or a value differs.
    """
    left, left_spec = tree_flatten(actual)
    right, right_spec = tree_flatten(expected)
    if left_spec != right_spec:
        raise AssertionError(f"expected the structure {right_spec}, found {left_spec}")
    for position, (mine, theirs) in enumerate(zip(left, right, strict=True)):
        if isinstance(theirs, torch.Tensor):
            _assert_same_tensor(mine, theirs, roundings, dtype, position)
        elif mine != theirs:
            raise AssertionError(f"result {position}: expected {theirs}, found {mine}")


def _assert_same_tensor(
    actual: object,
    expected: torch.Tensor,
    roundings: int,
    dtype: torch.dtype | None,
    position: int,
) -> None:
    if not isinstance(actual, torch.Tensor):
        message = f"result {position}: expected a tensor, found {actual!r}"
        raise AssertionError(message)  # noqa: TRY004 - a test failed, not a call
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        raise AssertionError(
            f"result {position}: expected {expected.dtype} {list(expected.shape)}, found "
            f"{actual.dtype} {list(actual.shape)}"
        )
    mine, theirs = actual.cpu(), expected.cpu()
    if roundings and dtype is not None and theirs.dtype == torch.int8:
        _assert_same_steps(mine, theirs, tolerance_of(dtype, roundings=roundings) / 2, position)
        return
    if roundings == 0 or not theirs.dtype.is_floating_point:
        if not torch.equal(mine, theirs):
            count = int((mine != theirs).sum())
            raise AssertionError(f"result {position}: {count} of {theirs.numel()} values differ")
        return
    difference = float((mine.double() - theirs.double()).abs().max())
    rounded = theirs.dtype if dtype is None else dtype
    allowed = tolerance_of(rounded, roundings=roundings) * float(theirs.double().abs().max())
    if not difference <= allowed:
        raise AssertionError(
            f"result {position}: the largest difference {difference:.3g} exceeds {allowed:.3g} "
            f"({roundings} roundings of {rounded})"
        )


def _assert_same_steps(
    actual: torch.Tensor, expected: torch.Tensor, relative: float, position: int
) -> None:
    steps = (actual.int() - expected.int()).abs()
    moved = expected.double().abs() * relative
    farthest = math.ceil(float(moved.max()))
    likely = float(moved.sum())
    most = likely + 4 * math.sqrt(likely) + 1
    if int(steps.max()) > farthest or int((steps > 0).sum()) > most:
        raise AssertionError(
            f"result {position}: {int((steps > 0).sum())} of {steps.numel()} quantised values "
            f"differ, by up to {int(steps.max())}; expected at most {most:.0f}, by {farthest}"
        )
