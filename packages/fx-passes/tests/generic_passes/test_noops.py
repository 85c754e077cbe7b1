"""No-ops are removed; operators with a visible effect stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes
from fx_passes.generic_passes import remove_noops
from fx_passes.testing import (
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PIPELINE = fx_passes.Pipeline(
    passes=(
        fx_passes.NormalizePass(),
        fx_passes.RulePass(name="noops", rules=remove_noops()),
    )
)


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda x: x.view(4, 8) * 2, "remove_reshape"),
        (lambda x: x.reshape(-1, 8) * 2, "remove_reshape"),
        (lambda x: x.view(2, 16).view(8, 4) * 2, "merge_reshapes"),
        (lambda x: x[:, 0:] * 2, "remove_slice"),
        (lambda x: x.to(torch.float32) * 2, "remove_cast"),
        (lambda x: x.unsqueeze(1).squeeze(1) * 2, "remove_unsqueeze_squeeze"),
    ],
)
def test_noop_is_removed_and_the_values_stay(
    function: Callable[[Tensor], Tensor], rule: str
) -> None:
    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs)

    assert_rewritten(PIPELINE, module, {rule: 1})

    assert_same_values(module(*inputs)[0], function(*inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(8, 4) * 2,
        lambda x: x[:, 1:] * 2,
        lambda x: x.to(torch.float16) * 2,
        lambda x: x.unsqueeze(1).squeeze(0) * 2,
    ],
)
def test_what_changes_something_stays_without_a_word(function: Callable[[Tensor], Tensor]) -> None:
    module = capture_graph(function, random_tensors((4, 8), dtype=torch.float32, device="cpu"))

    report = assert_rewritten(PIPELINE, module, {})

    assert report.near_misses() == ()


@pytest.mark.parametrize(
    ("function", "matches"),
    [
        # One reshape would be a view of what the first of two has copied.
        (lambda x: x.t().reshape(32).reshape(8, 4), {}),
        (lambda x: x.t().reshape(32).reshape(8, 2, 2), {}),
        (lambda x: x.t().reshape(32).reshape(2, 16), {"merge_reshapes": 1}),
        (lambda x: x.t().reshape(2, 4, 4).reshape(8, 2, 2), {"merge_reshapes": 1}),
        (lambda x: x.reshape(32).reshape(4, 2, 4), {"merge_reshapes": 1}),
    ],
)
def test_reshapes_are_merged_where_the_result_stays_a_copy_or_a_view(
    function: Callable[[Tensor], Tensor], matches: dict[str, int]
) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1.5
        z = function(y)
        z.add_(1)
        return y, z

    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")
    module = make_fx(program, pre_dispatch=True)(*inputs)

    PIPELINE.run(module)

    assert_same_values(module(*inputs), program(*inputs))
    report = PIPELINE.run(make_fx(lambda x: function(x * 1.5) * 2, pre_dispatch=True)(*inputs))
    assert {k: n for k, n in report.report.match_counts().items() if n} == matches


@pytest.mark.parametrize(
    "function",
    [
        # What follows keeps the strides, and its `view` fits those of a contiguous copy only.
        lambda x: x.t().reshape(16).reshape(4, 4).sin().view(16) * 2,
        lambda x: x.t().contiguous().reshape(4, 4).sin().view(16) * 2,
        lambda x: x.t().contiguous().reshape(4, 2, 2).sin().view(16) * 2,
        lambda x: x.t().clone(memory_format=torch.contiguous_format).view(4, 4).sin().view(16) * 2,
    ],
)
@pytest.mark.parametrize("trace", ["make_fx", "aten"])
def test_copy_that_a_reshape_would_not_make_stays_where_strides_show(
    function: Callable[[Tensor], Tensor], trace: str
) -> None:
    inputs = random_tensors((4, 4), dtype=torch.float32, device="cpu")
    module = (
        make_fx(function, tracing_mode="fake")(*inputs)
        if trace == "make_fx"
        else capture_graph(function, inputs, level="aten")
    )
    PIPELINE.run(module)

    found = module(*inputs)
    assert_same_values(found[0] if isinstance(found, tuple) else found, function(*inputs))


def test_view_that_is_written_still_reaches_its_base() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 1.5
        y.view(2, 16).view(8, 4).add_(1)
        return y

    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs)

    PIPELINE.run(module)

    assert_same_values(module(*inputs)[0], function(*inputs))


def test_symbolic_reshape_to_the_same_shape_is_removed() -> None:
    inputs = random_tensors((4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(lambda x: x.view(-1, 8) * 2, inputs, dynamic={0: 0})

    assert_rewritten(PIPELINE, module, {"remove_reshape": 1})


def test_copy_used_together_with_its_source_stays() -> None:
    inputs = random_tensors((4, 4), dtype=torch.float32, device="cpu")
    module = capture_graph(lambda x: x.t().clone() * x, inputs)

    assert_rewritten(PIPELINE, module, {})
