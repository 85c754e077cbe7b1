"""The graphs of one model of vllm-ascend 0.30 that are updated by an update lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm_ascend.compilation.updatable_graph import UpdatableGraph

from attn_update import AttnUpdateError
from vllm_npu_graph.v0_30.task_updates import TaskUpdates, make_recorder

if TYPE_CHECKING:
    from collections.abc import Hashable

    from typing_extensions import Self

    from attn_update import UpdateLane
    from vllm_npu_graph.v0_30.task_updates import StepSource

_LOGGER = logging.getLogger("vllm.npu_graph")


class LaneGraph(UpdatableGraph):  # type: ignore[misc]
    """Replaces a graph that the engine captured, with the same methods.

    The engine calls `resolve_tasks` with the source of a step's arguments, then `replay` and
    `update`, in either order. `replay` checks the step before it launches anything, and does not
    wait. The lane issues the updates.
    """

    def __new__(cls, updates: TaskUpdates) -> Self:
        """Create an empty graph of torch_npu, which takes no arguments."""
        del updates
        made: Self = super().__new__(cls)
        return made

    def __init__(self, updates: TaskUpdates) -> None:
        super().__init__()
        self._updates = updates
        self._source: StepSource | None = None

    def resolve_tasks(self, source: Any) -> tuple[()]:
        """Store the source of the step that is replayed next."""
        self._source = source
        return ()

    def replay(self) -> None:
        """Replay the graph and issue the updates of its tasks; returns as soon as all is queued.

        Raises:
            AttnUpdateError: From `TaskUpdates.replay`.
        """
        source, self._source = self._source, None
        self._updates.replay(source)

    def update(self, update_stream: Any, resolved_tasks: Any) -> None:
        """Do nothing: `replay` issues the updates, on the lane's own stream."""
        del update_stream, resolved_tasks


class AdoptedGraphs:
    """Replaces graphs that the engine captured by graphs that a lane updates.

    Attributes:
        lane: Of the device.
    """

    def __init__(self, lane: UpdateLane) -> None:
        self.lane = lane
        self._recorder = make_recorder(lane.device)

    def adopt(self, graph: Any, key: Hashable, source: StepSource) -> Any:
        """Return the replacement of a captured graph, or the graph itself if the engine updates it.

        Args:
            graph: Captured by the engine; returned if it has no tasks, as the graph of a piece.
            key: The engine's batch descriptor; replaces an earlier capture of it.
            source: Of the capture, or of the graph's first step.
        """
        if key in self._recorder.keys:
            self._recorder.release(key)
        if not isinstance(graph, UpdatableGraph) or not graph.tasks:
            return graph
        try:
            updates = TaskUpdates(graph, graph.tasks, self._recorder, self.lane, key, source)
        except AttnUpdateError as error:
            _LOGGER.warning("vllm-npu-graph leaves the updates of a graph to the engine: %s", error)
            return graph
        return LaneGraph(updates)

    def release_all(self) -> None:
        """Release the records of all graphs; the engine has dropped the graphs."""
        self._recorder.close()
