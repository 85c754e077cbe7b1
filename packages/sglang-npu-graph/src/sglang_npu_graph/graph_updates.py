"""The captured decode graphs of one runner: which of them are updated on the lane, and how.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update import Recorder, RecordingError, UpdatableGraph

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from attn_update import DispatchedGraph, Lengths, TaskDevice, UpdateLane


class GraphUpdates:
    """Replays and updates graphs by their key.

    Args:
        device: Of the graphs.
        lane: Of the device; shared with other runners, whose graphs run one after the other.

    Attributes:
        lane: Of the device.
        left_out: Why graphs are left to the engine, by key.
    """

    def __init__(self, device: TaskDevice, lane: UpdateLane) -> None:
        self.left_out: dict[Hashable, str] = {}
        self._recorder = Recorder(device)
        self.lane = lane
        self._graphs: dict[Hashable, UpdatableGraph] = {}

    def forget(self, key: Hashable) -> None:
        """Release the records of a graph that is about to be captured again or destroyed."""
        self.left_out.pop(key, None)
        graph = self._graphs.pop(key, None)
        if graph is not None:
            graph.release()

    def add(self, key: Hashable, graph: DispatchedGraph) -> None:
        """Manage the updates of a captured graph, if it has recorded attention.

        If an operator has no kind, the graph is left to the engine, and `left_out` names the
        operator.

        Raises:
            StepParameterError: The captured lengths violate the rules of their kind.
            ArgumentError: A workspace does not suffice for all lengths of later steps.
        """
        self.forget(key)
        if not UpdatableGraph.has_records(graph):
            return
        try:
            self._graphs[key] = UpdatableGraph(self._recorder, key, graph, self.lane)
        except RecordingError as error:
            self.left_out[key] = str(error)

    def has(self, key: Hashable) -> bool:
        """Return whether a graph is updated here."""
        return key in self._graphs

    def update(self, key: Hashable, inputs: Sequence[Mapping[str, Lengths]]) -> None:
        """Replay a graph with new lengths; returns as soon as all is queued.

        Raises:
            AttnUpdateError: From `attn_update.UpdatableGraph.update`.
        """
        self._graphs[key].update(inputs)

    def clear(self) -> None:
        """Release all records; call it when no replay is under way."""
        for key in list(self._graphs):
            self.forget(key)
