"""The graphs of one model of vllm-ascend 0.30 that are updated by an update lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm_ascend.compilation.updatable_graph import UpdatableGraph

from attn_update import AttnUpdateError
from vllm_npu_graph.v0_30.lane_graph import LaneGraph
from vllm_npu_graph.v0_30.task_updates import TaskUpdates, make_recorder

if TYPE_CHECKING:
    from collections.abc import Hashable

    from attn_update import UpdateLane
    from vllm_npu_graph.v0_30.task_updates import StepSource

_LOGGER = logging.getLogger("vllm.npu_graph")


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
