"""Update plans of graphs whose metadata producers make on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from attn_update.producers import Producer, ProducerStep
from npu_compile.errors import ConfigError
from npu_compile.runners.recorded_plans import RecordedPlans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.inputs.step_size import StepSize
    from npu_compile.runners.producing.step_producers import StepProducers
    from npu_graph_runtime import GraphKey


@dataclass(frozen=True, repr=False)
class _LaneKey:
    """The key of a graph on a lane: models that share the lane may have equal graph keys."""

    key: GraphKey
    owner: object

    def __repr__(self) -> str:
        return str(self.key)


class ProducedPlans(RecordedPlans):
    """Update plans, and the producers of the same graphs, whose padded sizes `size_of` returns."""

    def __init__(
        self,
        compiled: CompiledModel,
        producers: StepProducers,
        size_of: Callable[[GraphKey], StepSize],
        *,
        recorder: Recorder | None,
        lane: UpdateLane | None,
        groups: Mapping[str, ParameterGroup] | None,
    ) -> None:
        super().__init__(recorder, lane, groups)
        self._compiled = compiled
        self._producers = producers
        self._size_of = size_of
        self._padding: dict[GraphKey, Mapping[str, Mapping[str, Lengths]]] = {}

    def prepare(self, key: GraphKey, shown: object) -> None:
        """Make the metadata of a step of padding, for warm-up runs and measurements.

        Raises:
            ConfigError: `shown` is not a mapping of lengths.
        """
        try:
            padding = dict(shown)  # type: ignore[call-overload]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"preparing a step of padding of {key}: prepare returned {shown!r}, expected the "
                "lengths by parameter group that it showed to attention; return them, since "
                "producers make the metadata of warm-up runs from them"
            ) from error
        self._padding[key] = padding
        self.make_metadata(padding, self._size_of(key))

    def make_metadata(self, lengths: Mapping[str, Mapping[str, Lengths]], size: StepSize) -> None:
        """Run the producers of a step at once, on the current stream."""
        producers = self._producers
        made = producers.make_checked(size)
        write = producers.write_inputs
        if write is not None:
            # As a producer it runs behind the fence.
            first = min((producer.stage for producer in made), default=0)
            launch = partial(write, size)
            made.insert(0, Producer(name="inputs", launch=launch, buffers=(), stage=first))
        producers.lane.run_now(made, lengths)

    def record(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step and its producers during its capture, and return the step's result."""
        with self._compiled.inside_captures(partial(self._recording, key)):
            return super().record(key, step)

    def updating(
        self, lengths: Mapping[str, Mapping[str, Lengths]]
    ) -> Mapping[str, Mapping[str, Lengths]]:
        """Return those lengths that attention is updated with."""
        own = self._producers.groups
        return {name: given for name, given in lengths.items() if name not in own}

    def replaying(
        self,
        key: GraphKey,
        lengths: Mapping[str, Mapping[str, Lengths]] | None,
        replay: Callable[[], Any],
    ) -> Callable[[], Any]:
        """Check a step, and return a function that produces and replays; launches nothing."""
        producers, size = self._producers, self._size_of(key)
        given = self._padding[key] if lengths is None else lengths
        needs = producers.checked_needs(size, given)
        step = ProducerStep(key=self._lane_key(key), needs=needs, values=given)
        producers.lane.check(step)
        write = producers.write_inputs

        def write_and_replay() -> Any:
            if write is not None:
                write(size, given)
            return replay()

        return partial(producers.lane.run, step, replay if write is None else write_and_replay)

    def _recording(self, key: GraphKey) -> AbstractContextManager[None]:
        assert self._recorder is not None  # noqa: S101
        producers = self._producers
        return producers.lane.recording(
            self._recorder,
            producers.make_checked(self._size_of(key)),
            captured=producers.captured,
            values=self._padding[key],
            key=self._lane_key(key),
        )

    def _lane_key(self, key: GraphKey) -> _LaneKey:
        return _LaneKey(key, self._recorder)


def plans_of(
    compiled: CompiledModel,
    producers: StepProducers | None,
    size_of: Callable[[GraphKey], StepSize],
    *,
    recorder: Recorder | None,
    lane: UpdateLane | None,
    groups: Mapping[str, ParameterGroup] | None,
) -> RecordedPlans:
    """Return the update plans of steps, with or without producers."""
    if producers is None:
        return RecordedPlans(recorder, lane, groups)
    return ProducedPlans(compiled, producers, size_of, recorder=recorder, lane=lane, groups=groups)
