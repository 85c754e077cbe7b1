"""The layers of one model, recorded by an engine at capture and updated at every step.

An engine passes each layer an object that describes a step: its metadata. At capture you pass a
function that reads step parameters from it, one for each kind of attention.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_update.errors import StepParameterError
from attn_update.planning.update_plan import StepParameters, UpdatePlan
from attn_update.recording.automatic_recording import AutomaticRecording
from attn_update.recording.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from torch import Tensor

    from attn_update.kinds.kind import Kind
    from attn_update.kinds.lengths import Lengths
    from attn_update.lane.update_lane import UpdateLane


class UpdatableLayers:
    """Records the layers of one model by graph key, and updates them around an engine's replays.

    Layers captured with the same metadata object form a parameter group, named after the first of
    them. Its lengths are read once per step. Either all layers of a graph are recorded, or none;
    graphs of different keys may use different kinds. If layers launch attention several times, each
    launch has groups of its own.

    Args:
        lane: Lane of the device; a model and its draft share it.
        layers: Names of all layers whose attention is recorded.

    Attributes:
        lane: Lane of the device.
    """

    def __init__(self, lane: UpdateLane, layers: Iterable[str]) -> None:
        self.lane = lane
        self._recorder = Recorder(lane.device)
        self._layers = frozenset(layers)
        self._plans: dict[Hashable, UpdatePlan] = {}
        self._groups: dict[Hashable, dict[str, _Group]] = {}
        self._captured: dict[tuple[int, str | Kind, str | None], _Group] = {}
        self._is_open = False

    @contextmanager
    def recording(self, key: Hashable) -> Iterator[None]:
        """Record the attention captured inside; an earlier capture of the key is dropped.

        Args:
            key: Key of the graph. Without attention inside, it is not recorded.

        Raises:
            PlanError: Only some of the layers were captured through this object.
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
        plan = UpdatePlan.compile(self._recorder, key, layers=self._expected_records())
        groups = {each.name: each for each in self._captured.values()}
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
        launch: str | None = None,
    ) -> tuple[Tensor, ...]:
        """Capture the attention of a layer. `recording_layer` calls it, of a subclass too.

        Args:
            layer_name: Name of the layer.
            kind: Kind of its attention, as for `Recorder.attention`.
            metadata: The engine's metadata of the layer for this capture.
            arguments: Arguments of the operator, as for `Recorder.attention`.
            read: Returns the step parameters in the metadata of a step; arguments that the kind
                does not have are dropped.
            pad: Whether a step may have fewer sequences than were captured, as in
                `ParameterGroup.pad`. If the kind keeps the captured block table, into which the
                engine writes, `read` must return that table.
            launch: Name of the launch in a layer that launches attention several times, as for
                `Recorder.attention`. Each may have a `read` of its own.

        Returns:
            The outputs of the operator.

        Raises:
            AttnUpdateError: From `Recorder.attention`.
        """
        made = _Group(layers=[], read=read, pad=pad, launch=launch)
        group = self._captured.setdefault((id(metadata), kind, launch), made)
        group.layers.append(layer_name)
        return self._recorder.attention(
            layer_name, kind, arguments, group=group.name, launch=launch
        )

    @contextmanager
    def recording_layer(
        self,
        layer_name: str,
        kind: str | Kind,
        metadata: object,
        read: Callable[[Any], Mapping[str, Lengths]],
        *,
        pad: bool = False,
        launch: str | None = None,
    ) -> Iterator[None]:
        """Capture the attention of a layer, through the single call of its operator made inside.

        Args:
            layer_name: As for `attention`.
            kind: Kind of the called operator.
            metadata: As for `attention`.
            read: As for `attention`.
            pad: As for `attention`.
            launch: As for `attention`; enter the context once for each launch of the layer.

        Raises:
            AttnUpdateError: From `Recorder.attention`.
        """
        operator = self._recorder.kind(kind, what=f"recording layer {layer_name!r}").operator
        operators = dict.fromkeys((operator, operator.partition(".")[0]), kind)

        def attention(arguments: Mapping[str, object]) -> tuple[Tensor, ...]:
            return self.attention(
                layer_name, kind, metadata, arguments, read, pad=pad, launch=launch
            )

        with _LayerRecording(self._recorder, operators, attention):
            yield

    def is_recorded(self, key: Hashable) -> bool:
        """Return whether the graph of a key was captured with recorded attention."""
        return key in self._plans

    def release_all(self) -> None:
        """Drop all captures, whose graphs are gone, and free the rest of their pool."""
        self._plans.clear()
        self._recorder.close()

    @contextmanager
    def step(self, key: Hashable, metadata: Mapping[str, Any] | None) -> Iterator[None]:
        """Update the graph that is replayed inside; if the replay fails, it is released.

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
        """Begin a step before the engine's replay; if it is rejected, nothing is launched.

        Args:
            key: Key of the graph.
            metadata: The engine's metadata of each layer in this step, by name.

        Raises:
            StepParameterError: A layer has no metadata, the layers share theirs differently than at
                capture, or the reader does not support it.
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
        """Launch the updates of the step that was begun; return whether there was one.

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

    def _expected_records(self) -> set[str]:
        """Return the records of the declared layers; of one that was not captured, its name."""
        captured = [(layer, group) for group in self._captured.values() for layer in group.layers]
        records = {group.record_of(layer) for layer, group in captured if layer in self._layers}
        return records | self._layers.difference(layer for layer, _ in captured)


class _LayerRecording(AutomaticRecording):  # type: ignore[no-untyped-call]
    """Passes a call made inside to the attention of one layer."""

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
    """Layers captured with one metadata object, and the function that reads their parameters."""

    layers: list[str]
    read: Callable[[Any], Mapping[str, Lengths]]
    pad: bool
    launch: str | None

    @property
    def name(self) -> str:
        """Under which the first of them is recorded."""
        return self.record_of(self.layers[0])

    def record_of(self, layer: str) -> str:
        """Return the name under which a layer is recorded."""
        return layer if self.launch is None else f"{layer}:{self.launch}"


def _read_step(plan: UpdatePlan, name: str, given: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """Return the step parameters of a group from its metadata."""
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
    """Return why the metadata of layers that shared theirs cannot be used."""
    for layer, own in zip(layers, given, strict=True):
        if own is None:
            return (
                "expected the engine's metadata of each layer that the graph was captured with, "
                f"found none of {layer!r}; run a step without attention eagerly, or give it some"
            )
    return f"the layers of {layers[0]!r} shared their metadata at capture, and do not now"
