"""Which values are held in memory at each cut, and how many bytes they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from piecewise_split.planning.size_reads import SizeRead, Value, node_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from piecewise_split.planning.piece_flow import GraphScope, PieceFlow


def live_values(scope: GraphScope, flows: Sequence[PieceFlow]) -> list[tuple[Value, ...]]:
    """Return for each piece what earlier pieces made and what is used from there on.

    Linear in the graph and in what is live at the cuts.
    """
    last_use: dict[Value, int] = {}
    for index, flow in enumerate(flows):
        last_use.update(dict.fromkeys(flow.inputs, index))
    last_use.update(dict.fromkeys(scope.used_by(scope.output), len(flows)))
    live: dict[Value, None] = {}
    held: list[tuple[Value, ...]] = []
    for index, flow in enumerate(flows):
        held.append(tuple(live))
        live.update(dict.fromkeys(flow.outputs))
        for value in (*flow.inputs, *flow.outputs):
            if last_use.get(value, index) <= index:
                live.pop(value, None)
    return held


def bytes_of(values: Sequence[Value]) -> int | None:
    """Return the bytes of the tensors among some values, or None where metadata does not say."""
    total = 0
    for value in values:
        if isinstance(value, SizeRead):
            continue
        held = node_value(value)
        if held is None:
            return None
        for each in held if isinstance(held, (tuple, list)) else (held,):
            if isinstance(each, torch.Tensor):
                size = _example_bytes(each)
                if size is None:
                    return None
                total += size
    return total


def _example_bytes(tensor: torch.Tensor) -> int | None:
    count = tensor.element_size()
    sizes: Sequence[int | torch.SymInt] = tensor.shape
    for size in sizes:
        # Asking a symbolic size for its number would fix it; its hint is that of the example.
        known: object = size.node.hint if isinstance(size, torch.SymInt) else size
        if not isinstance(known, int):
            return None
        count *= known
    return count
