"""The update plans of captured graphs, and the records that they are compiled from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import StepParameters, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_graph_runtime import GraphKey


class RecordedPlans:
    """Update plans by graph key, and the records that they were compiled from.

    Args:
        recorder: what attention runs through; ``None`` where nothing is ever recorded.
        lane: the update lane of the device; likewise.
        groups: the parameter groups of the plans.

    Attributes:
        by_key: the plans.
        lane: as given.
    """

    def __init__(
        self,
        recorder: Recorder | None,
        lane: UpdateLane | None,
        groups: Mapping[str, ParameterGroup] | None,
    ) -> None:
        self.by_key: dict[GraphKey, UpdatePlan] = {}
        self._recorder = recorder
        self.lane = lane
        self._groups = groups
        self._recorded: set[GraphKey] = set()

    def capture(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step that captures, keep the plan of its graph, return what `step` returns.

        Raises:
            AttnUpdateError: the layers recorded are not those of the captures before.
        """
        output = self.record(key, step)
        # All captures run the same model, so each must have recorded the layers of the first.
        first = next(iter(self.by_key.values()), None)
        layers = [update.layer_name for update in first.updates] if first else None
        self.by_key[key] = self.compile(key, layers)
        return output

    def record(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step that captures, keep no plan, return what `step` returns."""
        assert self._recorder is not None  # noqa: S101
        with self._recorder.recording(key):
            output = step()
        self._recorded.add(key)
        return output

    def compile(self, key: GraphKey, layers: list[str] | None = None) -> UpdatePlan:
        """Return a new plan of what is recorded, of these layers where they are given."""
        assert self._recorder is not None  # noqa: S101
        return UpdatePlan.compile(self._recorder, key, groups=self._groups, layers=layers)

    def run(
        self,
        key: GraphKey,
        lengths: Mapping[str, Mapping[str, Lengths]],
        replay: Callable[[], Any],
    ) -> Any:
        """Replay a graph with the lengths of a step; return what `replay` returns."""
        assert self.lane is not None  # noqa: S101
        parameters = StepParameters(key=key, groups=lengths)
        return self.lane.run(self.by_key[key], parameters, replay)

    def drain(self) -> None:
        """Let the lane's thread come to its end: what it issues would be captured, or refused."""
        if self.lane is not None:
            self.lane.drain()

    def forget(self, key: GraphKey) -> None:
        """Give up the plan and the records of a graph, if there are any, after its release."""
        self.by_key.pop(key, None)
        if key in self._recorded and self._recorder is not None:
            self._recorded.discard(key)
            self._recorder.release(key)

    def clear(self) -> None:
        """Give up all plans and records of this object.

        Its own only: the recorder may be shared, and hold another's under equal keys.
        """
        self.by_key.clear()
        for key in tuple(self._recorded):
            self.forget(key)
