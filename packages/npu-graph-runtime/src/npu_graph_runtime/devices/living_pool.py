"""Handles of graph memory pools that outlive the graphs captured into them.

A pool of torch's allocators is destroyed with its last graph, and a capture into a destroyed one
fails an assertion (seen in torch_npu 2.10 to 2.14, read in torch.cuda). The capture then uses a new
pool, which the handle refers to from then on.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self


class LivingPool(tuple[int, int]):  # noqa: SLOT001 - a tuple cannot have any
    """A pool handle, equal to the device's own, that keeps the pool alive.

    Attributes:
        native: the device's handle of the current pool.
        was_used: whether a capture into it was begun.
        graphs: graphs captured into it; those that were reset stay until they are collected.
    """

    native: Any
    was_used: bool
    graphs: weakref.WeakSet[Any]

    def __new__(cls, handle: Any) -> Self:
        """Create a handle from the device's own."""
        made = super().__new__(cls, handle)
        made.native, made.was_used, made.graphs = handle, False, weakref.WeakSet()
        return made


class LivingPools:
    """The pools of one device."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._foreign: dict[object, LivingPool] = {}

    def create(self) -> LivingPool:
        """Return a handle, for any number of captures."""
        return LivingPool(self._make())

    def native(self, pool: object, graph: Any) -> Any:
        """Return the handle's current pool, and add the graph to its graphs.

        Args:
            pool: a handle from :meth:`create`, or the device's own.
            graph: the graph to be captured; its ``pool()`` raises until it is captured.
        """
        if not isinstance(pool, LivingPool):
            # A handle of the device's own, of which an engine has one or a few for all its graphs.
            pool = self._foreign.setdefault(pool, LivingPool(pool))
        # Graphs that an engine captured into its handle by itself are not seen here; a new pool is
        # no fault then, only memory that is not shared.
        if pool.was_used and not any(_is_captured(other) for other in pool.graphs):
            pool.native = self._make()
            pool.graphs.clear()
        pool.was_used = True
        pool.graphs.add(graph)
        return pool.native


def _is_captured(graph: Any) -> bool:
    """Return whether a graph is captured; otherwise it has no pool."""
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True
