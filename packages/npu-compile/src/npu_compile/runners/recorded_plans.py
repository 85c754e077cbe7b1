"""The update plans of captured graphs, the records of these, and producers of the same graphs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from attn_update import StepParameters, UpdatePlan
from attn_update.producers import Producer, ProducerStep
from npu_compile.errors import ConfigError
from npu_compile.inputs.input_spec import StepSize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_compile.runners.step_producers import StepProducers
    from npu_graph_runtime import GraphKey


@dataclass(frozen=True, repr=False)
class _LaneKey:
    """The key of a graph on a lane: models that share the lane may have equal graph keys."""

    key: GraphKey
    owner: object

    def __repr__(self) -> str:
        return str(self.key)


def size_of_key(key: GraphKey) -> StepSize:
    """Return the size of a step by its key alone.

    Raises:
        ConfigError: The key does not have it.
    """
    if key.num_sequences is None:
        raise ConfigError(
            f"capturing the step of {key} with producers: the key has no num_sequences, expected "
            "the sequences that its metadata is made for; name them in the key"
        )
    return StepSize(tokens=key.num_tokens, sequences=key.num_sequences)


class RecordedPlans:
    """Update plans by graph key, the records they were compiled from, and the graphs' producers.

    Without a recorder and a lane nothing is ever recorded.

    Args:
        producers: makes metadata of attention, if any.
        size_of: returns the padded size of a graph, for its producers.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        recorder: Recorder | None,
        lane: UpdateLane | None,
        groups: Mapping[str, ParameterGroup] | None,
        producers: StepProducers | None = None,
        size_of: Callable[[GraphKey], StepSize] = size_of_key,
    ) -> None:
        self.by_key: dict[GraphKey, UpdatePlan] = {}
        self.lane = lane
        self._compiled = compiled
        self._recorder = recorder
        self._groups = groups
        self._producers = producers
        self._size_of = size_of
        self._recorded: set[GraphKey] = set()
        self._padding: dict[GraphKey, Mapping[str, Mapping[str, Lengths]]] = {}

    def capture(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step during its capture, keep the plan of its graph, return the step's result.

        Raises:
            AttnUpdateError: The recorded layers differ from those of earlier captures.
        """
        output = self.record(key, step)
        # All captures run the same model, so each must have recorded the layers of the first, those
        # included that need no update.
        first, layers = next(iter(self.by_key.values()), None), None
        if first is not None:
            layers = [*(update.layer_name for update in first.updates), *first.records.fixed]
        self.by_key[key] = self.compile(key, layers)
        return output

    def record(self, key: GraphKey, step: Callable[[], Any]) -> Any:
        """Record a step during its capture without keeping a plan, and return the step's result."""
        assert self._recorder is not None  # noqa: S101
        produced: AbstractContextManager[None] = nullcontext()
        if self._producers is not None:
            produced = self._compiled.inside_captures(partial(self._recording, key))
        with produced, self._recorder.recording(key):
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
        """Make the metadata of a step of padding, for warm-up runs and measurements.

        `shown` is what the function that showed its lengths to attention returned.

        Raises:
            ConfigError: There are producers, and `shown` is not a mapping of lengths.
        """
        if self._producers is None:
            return
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
        """Run the producers of a step that does not replay, at once, on the current stream."""
        producers = self._producers
        if producers is None:
            return
        made = producers.make_checked(size)
        if producers.write_inputs is not None:
            # As a producer it runs behind the fence.
            first = min((producer.stage for producer in made), default=0)
            launch = partial(producers.write_inputs, size)
            made.insert(0, Producer(name="inputs", launch=launch, buffers=(), stage=first))
        producers.lane.run_now(made, lengths)

    def updating(
        self, lengths: Mapping[str, Mapping[str, Lengths]]
    ) -> Mapping[str, Mapping[str, Lengths]]:
        """Return those lengths that attention is updated with."""
        producers = self._producers
        if producers is None:
            return lengths
        return {name: given for name, given in lengths.items() if name not in producers.groups}

    def replaying(
        self,
        key: GraphKey,
        lengths: Mapping[str, Mapping[str, Lengths]] | None,
        replay: Callable[[], Any],
    ) -> Callable[[], Any]:
        """Check a step, and return a function that produces and replays; launches nothing.

        Lengths of ``None`` are those of a step of padding.
        """
        producers = self._producers
        if producers is None:
            return replay
        size = self._size_of(key)
        given = self._padding[key] if lengths is None else lengths
        needs = producers.checked_needs(size, given)
        step = ProducerStep(key=_LaneKey(key, self._recorder), needs=needs, values=given)
        producers.lane.check(step)
        write = producers.write_inputs

        def write_and_replay() -> Any:
            if write is not None:
                write(size, given)
            return replay()

        return partial(producers.lane.run, step, replay if write is None else write_and_replay)

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

    def _recording(self, key: GraphKey) -> AbstractContextManager[None]:
        assert self._recorder is not None  # noqa: S101
        assert self._producers is not None  # noqa: S101
        producers = self._producers
        return producers.lane.recording(
            self._recorder,
            producers.make_checked(self._size_of(key)),
            captured=producers.captured,
            values=self._padding[key],
            key=_LaneKey(key, self._recorder),
        )
