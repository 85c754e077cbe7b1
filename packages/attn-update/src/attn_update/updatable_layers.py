"""The layers of one model, recorded by an engine at capture and updated at every step.

An engine gives each layer an object that says what a step has: its metadata. What reads step
parameters from one is given at capture, one reader for each kind of attention.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_update.errors import StepParameterError
from attn_update.planning.step_parameters import StepParameters
from attn_update.planning.update_plan import UpdatePlan
from attn_update.recording.automatic_recording import AutomaticRecording
from attn_update.recording.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from torch import Tensor

    from attn_update.kinds.kind import Kind
    from attn_update.kinds.lengths import Lengths
    from attn_update.lane.update_lane import UpdateLane


class UpdatableLayers:
    """Records the layers of one model by graph key, and brackets an engine's replays.

    Layers that are captured with one metadata object are a parameter group, named after the first
    of them: their lengths are read once in a step. A graph has all layers or none; those of another
    key may be of another kind.

    Args:
        lane: Of the device; a model and its draft share it.
        layers: The names of all layers whose attention is recorded.

    Attributes:
        lane: Of the device.
    """

    def __init__(self, lane: UpdateLane, layers: Iterable[str]) -> None:
        self.lane = lane
        self._recorder = Recorder(lane.device)
        self._layers = frozenset(layers)
        self._plans: dict[Hashable, UpdatePlan] = {}
        self._groups: dict[Hashable, dict[str, _Group]] = {}
        self._captured: dict[tuple[int, str | Kind], _Group] = {}
        self._is_open = False

    @contextmanager
    def recording(self, key: Hashable) -> Iterator[None]:
        """Record the attention that is captured inside; a former capture of the key is forgotten.

        Args:
            key: Of the graph. Without attention inside, it is not recorded.

        Raises:
            PlanError: Some layers were captured through here and others were not.
        """
        self._plans.pop(key, None)
        if key in self._recorder.keys:
            self._recorder.release(key)
        self._captured = {}
        # Engines update the graphs of other attention themselves.
        with self._recorder.recording(key, allows_unrecorded=True):
            yield
        if not self._captured:
            self._recorder.release(key)
            return
        plan = UpdatePlan.compile(self._recorder, key, layers=self._layers)
        groups = {each.layers[0]: each for each in self._captured.values()}
        declared = {
            name: replace(group, pad=groups[name].pad) for name, group in plan.groups.items()
        }
        self._plans[key] = UpdatePlan.compile(self._recorder, key, groups=declared)
        self._groups[key] = groups

    def attention(
        self,
        layer_name: str,
        kind: str | Kind,
        metadata: object,
        arguments: Mapping[str, object],
        read: Callable[[Any], Mapping[str, Lengths]],
        *,
        pad: bool = False,
    ) -> tuple[Tensor, ...]:
        """Capture the attention of a layer.

        Args:
            layer_name: Of the layer.
            kind: Of its attention, as for `Recorder.attention`.
            metadata: What the engine gives the layer for this capture.
            arguments: Of the operator, as for `Recorder.attention`.
            read: Returns the step parameters that are in the metadata of a step; what the kind does
                not take is left out.
            pad: Whether a step may have fewer sequences than were captured, as in
                `ParameterGroup.pad`. If the kind keeps the captured block table, into which the
                engine writes, the one that is read has to be it.

        Returns:
            The outputs of the operator.

        Raises:
            AttnUpdateError: From `Recorder.attention`.
        """
        made = _Group(layers=[], read=read, pad=pad)
        group = self._captured.setdefault((id(metadata), kind), made)
        group.layers.append(layer_name)
        return self._recorder.attention(layer_name, kind, arguments, group=group.layers[0])

    @contextmanager
    def recording_layer(
        self,
        layer_name: str,
        kind: str | Kind,
        metadata: object,
        read: Callable[[Any], Mapping[str, Lengths]],
        *,
        pad: bool = False,
    ) -> Iterator[None]:
        """Capture the attention of a layer, by the one call of its operator that is made inside.

        Args:
            layer_name: As for `attention`.
            kind: Of what is called.
            metadata: As for `attention`.
            read: As for `attention`.
            pad: As for `attention`.

        Raises:
            AttnUpdateError: From `Recorder.attention`.
        """
        operator = self._recorder.kind(kind, what=f"recording layer {layer_name!r}").operator
        operators = dict.fromkeys((operator, operator.partition(".")[0]), kind)

        def attention(arguments: Mapping[str, object]) -> tuple[Tensor, ...]:
            return self.attention(layer_name, kind, metadata, arguments, read, pad=pad)

        with _LayerRecording(self._recorder, operators, attention):
            yield

    def is_recorded(self, key: Hashable) -> bool:
        """Return whether the graph of a key was captured with recorded attention."""
        return key in self._plans

    def release_all(self) -> None:
        """Forget all captures, whose graphs are gone, and free what is left of their pool."""
        self._plans.clear()
        self._recorder.close()

    @contextmanager
    def step(self, key: Hashable, metadata: Mapping[str, Any] | None) -> Iterator[None]:
        """Update the graph that is replayed inside; one whose replay fails is released.

        Args:
            key: As for `begin`.
            metadata: As for `begin`.

        Raises:
            AttnUpdateError: From `begin` and `finish`.
        """
        self.begin(key, metadata)
        try:
            yield
            self.finish()
        finally:
            self.abandon()

    def begin(self, key: Hashable, metadata: Mapping[str, Any] | None) -> None:
        """Begin a step before the engine's replay; nothing is launched if it is refused.

        Args:
            key: Of the graph.
            metadata: What the engine gives each layer in this step, by name.

        Raises:
            StepParameterError: A layer has no metadata, the layers share theirs otherwise than at
                capture, or it is not what the reader takes.
            AttnUpdateError: From `UpdateLane.begin`.
        """
        plan, groups = self._plans[key], {}
        for name, group in self._groups[key].items():
            own = [(metadata or {}).get(layer) for layer in group.layers]
            if any(each is not own[0] for each in own) or own[0] is None:
                problem = _metadata_problem(group.layers, own)
                raise StepParameterError(f"reading the lengths of a step of {key}: {problem}")
            groups[name] = _read_step(plan, name, group.read(own[0]))
        self.lane.begin(plan, StepParameters(key=key, groups=groups))
        self._is_open = True

    def finish(self) -> bool:
        """Issue the updates of the step that was begun; return whether there was one.

        Raises:
            UpdateError: From `UpdateLane.finish`.
        """
        was_open, self._is_open = self._is_open, False
        if was_open:
            self.lane.finish()
        return was_open

    def abandon(self) -> None:
        """Release the graph of a step that was begun and not finished, if there is one."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            self.lane.abandon()


class _LayerRecording(AutomaticRecording):  # type: ignore[no-untyped-call]
    """Gives what is called inside to the attention of one layer."""

    def __init__(
        self,
        recorder: Recorder,
        operators: Mapping[str, str | Kind],
        attention: Callable[[Mapping[str, object]], tuple[Tensor, ...]],
    ) -> None:
        super().__init__(recorder, operators=operators)
        self._attention = attention

    def attention(
        self, operator: str, kind: str | Kind, arguments: dict[str, Any]
    ) -> tuple[Tensor, ...]:
        """Record the layer's call."""
        del operator, kind
        return self._attention(arguments)


class _Group(NamedTuple):
    """Layers captured with one metadata object, and what reads their step parameters from one."""

    layers: list[str]
    read: Callable[[Any], Mapping[str, Lengths]]
    pad: bool


def _read_step(plan: UpdatePlan, name: str, given: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """Return the step parameters of a group, out of what was read from its metadata."""
    what, group = f"reading the lengths of a step of {plan.key}", plan.groups[name]
    for argument in group.arguments:
        if given.get(argument) is None:
            raise StepParameterError(
                f"{what}: expected {argument!r} in the metadata of {name!r}, found none"
            )
    captured: Any = plan.records.records[name].arguments.get("block_table")
    if group.pad and captured is not None and "block_table" not in group.arguments:
        found: Any = given.get("block_table")
        if found is not None and found.data_ptr() != captured.data_ptr():
            raise StepParameterError(
                f"{what}: expected the block table of {name!r} that was captured, found one in "
                f"other memory, which the graph does not read"
            )
    return {argument: given[argument] for argument in group.arguments}


def _metadata_problem(layers: list[str], given: list[object]) -> str:
    """Return why what the engine gives layers that shared their metadata does not serve."""
    for layer, own in zip(layers, given, strict=True):
        if own is None:
            return (
                "expected the engine's metadata of each layer that the graph was captured with, "
                f"found none of {layer!r}; run a step without attention eagerly, or give it some"
            )
    return f"the layers of {layers[0]!r} shared their metadata at capture, and do not now"
