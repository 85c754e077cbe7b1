"""Users of views, by the memory they refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from fx_passes import normalize_graph
from fx_passes.memory import EffectTable, escapes, meets_its_source, shows_layout, views_of
from fx_passes.testing import capture_graph

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("function", "leaves"),
    [
        (lambda x: x.relu() * 2, False),
        (lambda x: x.relu(), True),
        (lambda x: x.relu().view(2, 2).t(), True),
        (lambda x: x.relu().chunk(2)[1], True),
        (lambda x: x.relu().chunk(2)[1] + 1, False),
    ],
)
def test_value_escapes_through_its_views(
    function: Callable[[Tensor], Tensor], leaves: bool
) -> None:
    module = capture_graph(function, [torch.ones(4)])
    normalize_graph(module)
    (relu,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)

    assert escapes(relu, EffectTable()) == leaves


def test_views_of_views_are_found_and_copies_are_not() -> None:
    module = capture_graph(lambda x: x.relu().view(2, 2).t().exp().t(), [torch.ones(4)])
    normalize_graph(module)
    (relu,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)

    assert [str(node.target) for node in views_of(relu, EffectTable())] == [
        "aten.view.default",
        "aten.t.default",
    ]


@pytest.mark.parametrize(
    ("function", "meets"),
    [
        (lambda x: x.clone() * 2 + x, False),
        (lambda x: x.clone() * x, True),
        (lambda x: x.view(2, 2).clone() * x.view(2, 2).t(), True),
        (lambda x: x.clone().view(2, 2) * x.relu().view(2, 2), False),
    ],
)
def test_copy_and_a_view_of_its_source_overlap(
    function: Callable[[Tensor], Tensor], meets: bool
) -> None:
    module = capture_graph(function, [torch.ones(4)])
    normalize_graph(module)
    (copy,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)

    assert meets_its_source(copy, copy.all_input_nodes[0], EffectTable()) == meets


def _strided(x: Tensor) -> Tensor:
    return x.view(2, 2).as_strided((2,), (1,)) + 1


def _copied_and_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(2, 2).reshape(4), x


def _copied_and_written(x: Tensor) -> Tensor:
    x.view(2, 2).contiguous().add_(1)
    return x + 1


def _copied_and_used(x: Tensor) -> Tensor:
    return x.view(2, 2).reshape(4) + x


def _only_copied(x: Tensor) -> Tensor:
    return x.view(2, 2).reshape(4)


def _viewed_and_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(2, 2), x


@pytest.mark.parametrize(
    ("function", "shows"),
    [
        (_strided, True),
        (_copied_and_returned, True),
        (_copied_and_written, True),
        (_copied_and_used, False),
        (_only_copied, False),
        (_viewed_and_returned, False),
    ],
)
def test_layout_is_visible_in_strides_and_required_copies(
    function: Callable[[Tensor], object], shows: bool
) -> None:
    module = capture_graph(lambda x: function(x.relu()), [torch.ones(4)])
    normalize_graph(module)
    (relu,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)

    assert (shows_layout(relu, EffectTable()) is not None) == shows
