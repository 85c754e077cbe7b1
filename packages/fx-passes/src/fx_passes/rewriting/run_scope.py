"""Where and how a node is to run, as engines and compilers label it: stream and scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node


# npugraph_ex gives these to every node: the stream, how far results must not depend on the order
# of computation, and how many cores of the device may be used.
_SCOPES = ("deterministic_scope_level", "core_limit_scope")
_LABELS = frozenset({"stream_label", "custom", *_SCOPES})


def is_labelled(node: Node) -> bool:
    """Return whether a node may have a stream or a scope of its own; a quick test."""
    return not _LABELS.isdisjoint(node.meta)


def where_it_runs(node: Node) -> tuple[object, ...]:
    """Return the stream and the scopes of a node.

    Nodes of which any of these differs must not become one node. A node without labels runs on the
    default stream, in no scope.
    """
    meta = node.meta
    stream = meta.get("stream_label")
    if stream is None:
        custom = meta.get("custom")
        stream = custom.get("stream") if isinstance(custom, dict) else None
    scopes = [meta.get(name) for name in _SCOPES]
    # Scopes may be lists or dicts, which compare as well.
    return (stream, *scopes)
