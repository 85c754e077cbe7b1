"""Translates indexing of a tensor with `[...]` to ATen views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx.node import Argument

    from fx_passes.torch_internals import OpOverload


ViewCall = tuple["OpOverload", tuple["Argument", ...]]


def _is_number(value: object) -> bool:
    known = value_of(value)
    return isinstance(known, (int, torch.SymInt)) and not isinstance(known, bool)


def _is_view(index: object) -> bool:
    if isinstance(index, slice):
        bounds = (index.start, index.stop)
        step = index.step
        whole = step is None or (isinstance(step, int) and step > 0)
        return whole and all(bound is None or _is_number(bound) for bound in bounds)
    return index is None or index is Ellipsis or _is_number(index)


def _expanded(indices: Sequence[object], rank: int) -> list[object] | None:
    """Return the indices with an ellipsis written out, or None when it occurs twice."""
    dots = [position for position, index in enumerate(indices) if index is Ellipsis]
    if len(dots) > 1:
        return None
    if not dots:
        return list(indices)
    taken = sum(index is not None and index is not Ellipsis for index in indices)
    filling: list[object] = [slice(None)] * (rank - taken)
    return [*indices[: dots[0]], *filling, *indices[dots[0] + 1 :]]


def views_of_index(rank: int, index: object) -> list[ViewCall] | None:
    """Return the views, applied one after the other, that are equivalent to an index.

    Returns:
        `(operator, arguments after the tensor)` of each view, or None if the index is not a view
        (a tensor, a list, a bool). An empty list means the tensor itself.
    """
    indices = index if isinstance(index, tuple) else (index,)
    if not all(map(_is_view, indices)):
        return None
    expanded = _expanded(indices, rank)
    if expanded is None:
        return None
    aten = torch.ops.aten
    views: list[ViewCall] = []
    dimension = 0
    for each in expanded:
        if isinstance(each, slice):
            if each != slice(None):
                step = 1 if each.step is None else each.step
                arguments = (dimension, each.start, each.stop, step)
                views.append((aten.slice.Tensor, arguments if step != 1 else arguments[:3]))
            dimension += 1
        elif each is None:
            views.append((aten.unsqueeze.default, (dimension,)))
            dimension += 1
        elif isinstance(each, (int, Node)):
            views.append((aten.select.int, (dimension, each)))
    return views
