"""The workspace needs of launches, queried once for equal arguments.

Some kinds query their operator for every length, and the layers of a model need the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.kinds.kind import AttentionKind


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
