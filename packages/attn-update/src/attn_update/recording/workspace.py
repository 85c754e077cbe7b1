"""The workspace that all captured launches of one recorder share.

A launch uses its workspace only while it runs, and the graphs of one recorder run one after the
other. One buffer, as large as the largest need over all layers, kinds and keys, therefore serves
all of them. The exception are layers captured on several streams of one graph, which may run at the
same time: each such stream has a buffer of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.kinds.kind import AttentionKind


class Workspace:
    """Buffers that grow only while graphs are captured, never in a step.

    A buffer created during a capture comes from the capture's memory pool. If a larger one is
    needed later, earlier launches keep their buffer, which suffices for them. Capture the largest
    size first, or let warm-up runs measure, and there is one buffer.
    """

    def __init__(self) -> None:
        self._needed_bytes = 0
        self._buffers: list[list[torch.Tensor]] = []

    @property
    def allocated_bytes(self) -> int:
        """The size of all buffers."""
        return sum(buffer.numel() for lane in self._buffers for buffer in lane)

    @property
    def num_buffers(self) -> int:
        """The number of buffers."""
        return sum(len(lane) for lane in self._buffers)

    def measure(self, needed_bytes: int) -> None:
        """Record a need, so that the next buffer is large enough for it."""
        self._needed_bytes = max(self._needed_bytes, needed_bytes)

    def take(self, needed_bytes: int, *, stream_index: int, device: torch.device) -> torch.Tensor:
        """Return a buffer of at least `needed_bytes`, uint8, which lives until `clear`.

        ``stream_index`` is that of the stream, among those of the graph, that the launch is
        captured on.
        """
        self.measure(needed_bytes)
        while len(self._buffers) <= stream_index:
            self._buffers.append([])
        buffers = self._buffers[stream_index]
        if not buffers or buffers[-1].numel() < needed_bytes:
            # Never empty: the operator is handed the address.
            size = max(self._needed_bytes, 1)
            buffers.append(torch.empty(size, dtype=torch.uint8, device=device))
        return buffers[-1]

    def clear(self) -> None:
        """Free all buffers; no captured launch may be replayed afterwards."""
        self._buffers.clear()
        self._needed_bytes = 0


class WorkspaceNeeds:
    """Queries kinds, and caches the results."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def of(self, kind: AttentionKind, arguments: Mapping[str, object]) -> int:
        """Return the result of `AttentionKind.workspace_bytes` for these arguments."""
        described = (kind, *((name, _describe(arguments[name])) for name in sorted(arguments)))
        try:
            known = self._known.get(described)
        except TypeError:
            # A value that is not hashable may change.
            return kind.workspace_bytes(arguments)
        if known is None:
            known = self._known[described] = kind.workspace_bytes(arguments)
        return known


def _describe(value: object) -> object:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.ndim == 1:
            return (value.dtype, tuple(value.tolist()))
        return (tuple(value.shape), value.stride(), value.dtype, value.device)
    if isinstance(value, (list, tuple)):
        # Outputs are given so: what is remembered must not keep the memory of a graph.
        return tuple(_describe(item) for item in value)
    return value
