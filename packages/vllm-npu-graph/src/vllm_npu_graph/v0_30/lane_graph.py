"""A captured graph of vllm-ascend 0.30 whose attention tasks are updated by an update lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend.compilation.updatable_graph import UpdatableGraph

if TYPE_CHECKING:
    from typing_extensions import Self

    from vllm_npu_graph.v0_30.task_updates import StepSource, TaskUpdates


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
