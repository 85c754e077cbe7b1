"""The values that are alive at each cut, and their size in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from piecewise_split.planning.size_reads import SizeRead, Value, node_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from piecewise_split.planning.analysed_graph import AnalysedGraph


def live_values(analysed: AnalysedGraph) -> list[tuple[Value, ...]]:
    """Return for each piece the values of earlier pieces that are used from there on.

    Linear in the graph and in the live values at the cuts.
    """
    pieces = analysed.pieces
    last_use: dict[Value, int] = {}
    for index, piece in enumerate(pieces):
        last_use.update(dict.fromkeys(piece.inputs, index))
    last_use.update(dict.fromkeys(analysed.used_by(analysed.output), len(pieces)))
    live: dict[Value, None] = {}
    at_cuts: list[tuple[Value, ...]] = []
    for index, piece in enumerate(pieces):
        at_cuts.append(tuple(live))
        live.update(dict.fromkeys(piece.outputs))
        for value in (*piece.inputs, *piece.outputs):
            if last_use.get(value, index) <= index:
                live.pop(value, None)
    return at_cuts


def bytes_of(values: Sequence[Value]) -> int | None:
    """Return the total bytes of the tensors among some values, or None if metadata is missing."""
    total = 0
    for value in values:
        if isinstance(value, SizeRead):
            continue
        described = node_value(value)
        if described is None:
            return None
        for each in described if isinstance(described, (tuple, list)) else (described,):
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
