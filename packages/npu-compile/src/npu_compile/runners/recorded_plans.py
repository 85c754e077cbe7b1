"""The update plans of captured graphs, and the records they are compiled from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import StepParameters, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.inputs.step_size import StepSize
    from npu_graph_runtime import GraphKey


class RecordedPlans:
    """Update plans by graph key, and the records they were compiled from.

    Without a recorder and a lane nothing is ever recorded.
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
        """Record a step during its capture, keep the plan of its graph, return the step's result.

        Raises:
            AttnUpdateError: The recorded layers differ from those of earlier captures.
        """
        output = self.record(key, step)
        # All captures run the same model, so each must have recorded the layers of the first.
        first = next(iter(self.by_key.values()), None)
        self.by_key[key] = self.compile(key, None if first is None else _layers_of(first))
        return output

    def record(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step during its capture without keeping a plan, and return the step's result."""
        assert self._recorder is not None  # noqa: S101
        with self._recorder.recording(key):
            output = step()
        self._recorded.add(key)
        return output

    def compile(self, key: GraphKey, layers: list[str] | None = None) -> UpdatePlan:
        """Compile a new plan of the recorded layers, or of the given ones."""
        assert self._recorder is not None  # noqa: S101
        return UpdatePlan.compile(self._recorder, key, groups=self._groups, layers=layers)

    def run(
        self,
        key: GraphKey,
        lengths: Mapping[str, Mapping[str, Lengths]],
        replay: Callable[[], Any],
    ) -> Any:
        """Replay a graph with the lengths of a step, and return the result of `replay`."""
        assert self.lane is not None  # noqa: S101
        parameters = StepParameters(key=key, groups=self.updating(lengths))
        replaying = self.replaying(key, lengths, replay)
        return self.lane.run(self.by_key[key], parameters, replaying)

    def prepare(self, key: GraphKey, shown: object) -> None:
        """Make ready for a step of padding; here that is all done by what showed its lengths.

        `shown` is what the function that showed them to attention returned.
        """

    def make_metadata(self, lengths: Mapping[str, Mapping[str, Lengths]], size: StepSize) -> None:
        """Make the metadata of a step that does not replay as one graph; here it has none."""

    def updating(
        self, lengths: Mapping[str, Mapping[str, Lengths]]
    ) -> Mapping[str, Mapping[str, Lengths]]:
        """Return those lengths that attention is updated with; here all."""
        return lengths

    def replaying(
        self,
        key: GraphKey,  # noqa: ARG002 - of those with producers
        lengths: Mapping[str, Mapping[str, Lengths]] | None,  # noqa: ARG002
        replay: Callable[[], Any],
    ) -> Callable[[], Any]:
        """Return a function that replays a graph, and does what comes in front of it.

        Lengths of ``None`` are those of a step of padding.
        """
        return replay

    def drain(self) -> None:
        """Wait for the lane's thread; its launches would otherwise be captured, or rejected."""
        if self.lane is not None:
            self.lane.drain()

    def forget(self, key: GraphKey) -> None:
        """Drop the plan and the records of a graph, if there are any, after its release."""
        self.by_key.pop(key, None)
        if key in self._recorded and self._recorder is not None:
            self._recorded.discard(key)
            self._recorder.release(key)

    def clear(self) -> None:
        """Drop all plans and records of this object.

        The recorder may be shared and have records of others under equal keys; these stay.
        """
        self.by_key.clear()
        for key in tuple(self._recorded):
            self.forget(key)


def _layers_of(plan: UpdatePlan) -> list[str]:
    """Return the recorded layers of a plan, those included that need no update."""
    return [*(update.layer_name for update in plan.updates), *plan.records.fixed]
