"""The graphs of one model of vllm-ascend 0.30 that are updated on a lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm_ascend.compilation.updatable_graph import UpdatableGraph

from attn_update import AttnUpdateError
from vllm_npu_graph.v0_30.lane_graph import LaneGraph
from vllm_npu_graph.v0_30.task_updates import TaskUpdates, make_recorder

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update import UpdateLane

_LOGGER = logging.getLogger("vllm.npu_graph")


class AdoptedGraphs:
    """Lets graphs that the engine captured be updated on a lane.

    Args:
        lane: Of the device.

    Attributes:
        lane: Of the device.
    """

    def __init__(self, lane: UpdateLane) -> None:
        self.lane = lane
        self._recorder = make_recorder(lane.device)

    def adopt(self, graph: Any, key: Hashable, metadata: Mapping[str, Any] | None) -> Any:
        """Return what stands for a captured graph: the graph itself where it is left to the engine.

        Args:
            graph: Of the engine; one without tasks, such as that of a piece, is left to it.
            key: The engine's batch descriptor; a former capture of it is forgotten.
            metadata: What the engine gave each layer for the capture, by name.
        """
        if key in self._recorder.keys:
            self._recorder.release(key)
        if not isinstance(graph, UpdatableGraph) or not graph.tasks or metadata is None:
            return graph
        try:
            updates = TaskUpdates(graph, graph.tasks, self._recorder, self.lane, key, metadata)
        except AttnUpdateError as error:
            _LOGGER.warning("vllm-npu-graph leaves the updates of a graph to the engine: %s", error)
            return graph
        return LaneGraph(updates)

    def release_all(self) -> None:
        """Forget all graphs, which are gone."""
        self._recorder.close()
