"""The recorder runs attention and, during a capture, records how to update it."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from attn_update.errors import (
    CaptureError,
    RecordingError,
    UnknownNameError,
    nearest,
)
from attn_update.kinds.kind import metadata_arguments, needs_update
from attn_update.kinds.kind_table import default_kinds
from attn_update.operator_lookup import find_operator
from attn_update.recording.record import KeyRecords, Record
from attn_update.recording.tensor_memory import MemorySpan, WeakTensors, tensors_in
from attn_update.recording.unrecorded_attention import UnrecordedAttention
from attn_update.recording.workspace import Workspace, WorkspaceNeeds

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from attn_update.kinds.kind import AttentionKind, Kind
    from attn_update.recording.record import LayerProducers
    from attn_update.task_device import Stream, TaskDevice
    from attn_update.torch_internals import OpOverload


_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")


@dataclass(kw_only=True)
class _Recording:
    records: KeyRecords
    weak: WeakTensors
    streams: list[Stream] = field(default_factory=list)
    read: dict[str, list[MemorySpan]] = field(default_factory=dict)

    def stream_index(self, stream: Stream) -> int:
        if stream not in self.streams:
            self.streams.append(stream)
        return self.streams.index(stream)


class Recorder:
    """Records the attention launches of one model, by graph key and layer name.

    You own it. Several recorders (for a target and a draft model) are independent of each other. It
    owns the shared workspace and refers weakly to all other tensors. Only one thread at a time may
    record captures.

    Args:
        device: Device on which attention runs.
        kinds: Maps names to kinds; by default `attn_update.kinds.default_kinds`.
        watch_inputs: Whether to watch the memory of all tensors that launches read, for debugging.
            Otherwise only caches, tables, masks and the like are watched, which their owner must
            keep alive. Activations are mostly the graph's own memory. With this option, an
            activation that the caller still refers to when the recording ends, and drops later, is
            also reported.

    Attributes:
        is_launching: Whether it is calling operators now, which must not be recorded.
    """

    def __init__(
        self,
        device: TaskDevice,
        kinds: Mapping[str, Kind] | None = None,
        *,
        watch_inputs: bool = False,
    ) -> None:
        self.device = device
        self.workspace = Workspace()
        self._needs = WorkspaceNeeds()
        self._kinds = dict(default_kinds() if kinds is None else kinds)
        self._keys: dict[Hashable, KeyRecords] = {}
        self._watch_inputs = watch_inputs
        self._recording: _Recording | None = None
        self.is_launching = False
        self._scope = ""

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The recorded graph keys, in the order of capture."""
        return tuple(self._keys)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The table of kinds; do not modify it."""
        return MappingProxyType(self._kinds)

    @property
    def position(self) -> int | None:
        """Number of launches in the current recording; None if there is no recording."""
        if self._recording is None:
            return None
        return len(self._recording.records.records) + len(self._recording.records.fixed)

    @property
    def recorded_key(self) -> Hashable | None:
        """The graph key of the recording under way; None if there is none under way."""
        return None if self._recording is None else self._recording.records.key

    @contextmanager
    def recording(
        self, key: Hashable, *, graph: object = None, allows_unrecorded: bool = False
    ) -> Iterator[None]:
        """Record the attention captured inside the context under a graph key.

        Wrap it around the capture, or around warm-up runs and capture: attention that runs inside
        it without a capture only measures the workspace. If the context ends with an exception,
        nothing is kept.

        Args:
            key: The graph key, unique for each captured graph.
            graph: The captured graph, an object with a method `replay`; referenced weakly. A lane
                then replays it itself, and rejects the `replay` of another graph. On a
                `attn_update.task_device.GuardingDevice`, the replay of another graph is rejected
                even without it, whatever function replays it.
            allows_unrecorded: Whether attention of a known kind may be captured with host lengths
                and without a record. Use it if your engine updates some attention itself: without
                an update every replay uses the lengths of the capture.

        Raises:
            RecordingError: The key is already recorded, another recording is in progress, or
                attention was captured that is not recorded.
        """
        if self._recording is not None:
            raise RecordingError(
                f"recording key {key!r}: the recording of key "
                f"{self._recording.records.key!r} is under way; end it first",
            )
        if key in self._keys:
            raise RecordingError(
                f"recording key {key!r}: it is recorded already; release it first, with its graph",
            )
        records = KeyRecords(key, graph)
        self._recording = _Recording(records=records, weak=WeakTensors(self.device))
        try:
            with nullcontext() if allows_unrecorded else UnrecordedAttention(self):
                yield
        except BaseException:
            records.release()
            raise
        finally:
            self._recording = None
        # What is gone by now was made inside the capture, and its memory is the graph's own.
        records.watch.dead.clear()
        self._keys[key] = records

    @contextmanager
    def with_producers(self, producers: LayerProducers) -> Iterator[bool]:
        """Let the layers captured inside the context wait for producers; gives if it is guarded.

        `attn_update.producers.ProducerLane.recording` enters it.

        Args:
            producers: Of the graph that is captured now.

        Raises:
            RecordingError: No recording is under way, or its graph has producers already.
        """
        recording = self._recording
        if recording is None or recording.records.producers is not None:
            found = "none" if recording is None else "one whose graph has producers already"
            raise RecordingError(
                f"recording producers: expected a recording under way, found {found}"
            )
        records = recording.records
        records.producers = producers
        records.guard(self.device)
        yield records.is_guarded

    def layers_reading(self, tensors: Iterable[torch.Tensor]) -> list[str]:
        """Return the layers captured in the recording under way that read any of these tensors."""
        spans = [MemorySpan.of(tensor) for tensor in tensors]
        read = {} if self._recording is None else self._recording.read
        return [
            name
            for name, taken in read.items()
            if any(one.overlaps(other) for one in taken for other in spans)
        ]

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of the layers and groups captured inside the context.

        Use it for a graph that runs one model several times: layer ``layers.0`` of group
        ``default`` is recorded as ``step.1/layers.0`` of group ``step.1/default`` in the scope
        ``step.1``, and so has step parameters of its own. Scopes nest.

        Args:
            name: of the scope, once in each graph.
        """
        before = self._scope
        self._scope = f"{before}{name}/"
        try:
            yield
        finally:
            self._scope = before

    def attention(
        self,
        layer_name: str,
        kind: str | Kind,
        arguments: Mapping[str, object],
        *,
        group: str | None = None,
        launch: str | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Run one attention operator; during a capture, also make it updatable and record it.

        Args:
            layer_name: Name of the launch, unique for each key. Several steps of speculative
                decoding in one graph need a name for each step and layer, see `scope`.
            kind: A name in the table of kinds, or a kind, such as one with options:
                ``FusedInferAttention(rebind_block_table=True)``.
            arguments: The operator's arguments by name. Lengths may be lists, CPU tensors or
                arrays. You may pass ``out``, but not the workspace.
            group: The parameter group: layers that share their step parameters. By default the
                name of the launch, or ``default`` without one.
            launch: Name of the launch in a layer that launches attention several times. Launch
                ``history`` of layer ``layers.0`` is recorded as ``layers.0:history``.

        Returns:
            The outputs of the operator, owned by the caller (by the graph's pool if captured).

        Raises:
            UnknownNameError: The table has no such kind.
            RecordingError: A capture outside `recording`, or a layer name that is already used.
            ArgumentError: An argument is unknown or missing.
            StepParameterError: The captured lengths violate the rules of the kind.
            CaptureError: The operator failed while captured. The capture must be abandoned.
        """
        if group is None:
            group = launch or "default"
        if launch is not None:
            layer_name = f"{layer_name}:{launch}"
        if isinstance(kind, str):
            # Formatting what errors say costs more than the look-up.
            found = self._kinds.get(kind)
            kind = found or self.kind(kind, what=f"attention of layer {layer_name!r}")
        self.is_launching = True
        try:
            if self.device.is_capturing():
                if self._scope:
                    layer_name, group = self._scope + layer_name, self._scope + group
                records = self._open_records(layer_name)
                # All that can be refused is refused before the graph waits for an event.
                kind.check_arguments(arguments)
                self._await_producers(layer_name, kind, arguments)
                if needs_update(kind):
                    return self._capture(layer_name, kind, arguments, group)
                outputs = kind.run(arguments)
                records.fixed.add(layer_name)
                return outputs
            if self._recording is not None and needs_update(kind):
                self.workspace.measure(self._needs.of(kind, arguments))
            return kind.run(arguments)
        finally:
            self.is_launching = False

    def kind(self, kind: str | Kind, *, what: str) -> Kind:
        """Return the kind with a name, or a kind unchanged.

        Args:
            kind: A name in the table, or a kind.
            what: The current operation, for errors.

        Raises:
            UnknownNameError: The table has no such kind.
        """
        found = self._kinds.get(kind) if isinstance(kind, str) else kind
        if found is None:
            raise UnknownNameError(
                f"{what}: there is no kind {kind!r} in the recorder's table; "
                f"{nearest(str(kind), self._kinds)}",
            )
        return found

    def adopt(self, records: KeyRecords) -> None:
        """Add records that were created elsewhere, such as by torch_npu's own capture.

        Args:
            records: Complete records; this recorder owns them from now on.

        Raises:
            RecordingError: The key is already recorded.
        """
        if records.key in self._keys:
            raise RecordingError(
                f"adopting the records of key {records.key!r}: it is recorded already; release it "
                f"first, with its graph",
            )
        self._keys[records.key] = records

    def records(self, key: Hashable) -> KeyRecords:
        """Return the records of a key.

        Raises:
            UnknownNameError: The key was never recorded, or was released.
        """
        found = self._keys.get(key)
        if found is None:
            raise UnknownNameError(
                f"looking up the records of key {key!r}: never recorded, or released; recorded "
                f"keys: {', '.join(map(repr, self._keys)) or 'none'}",
            )
        return found

    def layers_waiting(self, message: str) -> tuple[tuple[Hashable, str], ...]:
        """Return key and layer of the external events that a message of the device names.

        Use it for a hung replay, if the device gives the address of the event that is not recorded.

        Args:
            message: Text of the error, with addresses in hexadecimal.

        Returns:
            Empty if no address belongs to an event, or if the device does not provide addresses.
        """
        address_of = getattr(self.device, "external_event_address", None)
        if address_of is None:
            return ()
        named = {int(text, 16) for text in _ADDRESS.findall(message)}
        return tuple(
            (key, name)
            for key, records in self._keys.items()
            for name, record in records.records.items()
            if address_of(record.event) in named
        )

    def release(self, key: Hashable) -> None:
        """Release a key, so that it can be captured again; plans created for it become invalid.

        Call it when the graph is destroyed, after its last replay has finished. The workspace is
        freed with the last key.

        Raises:
            UnknownNameError: The key is not recorded.
        """
        self.records(key).release()
        del self._keys[key]
        if not self._keys:
            self.workspace.clear()

    def close(self) -> None:
        """Release all keys and the workspace."""
        for key in self.keys:
            self.release(key)
        self.workspace.clear()

    def _open_records(self, layer_name: str) -> KeyRecords:
        recording = self._recording
        if recording is None:
            raise RecordingError(
                f"capturing attention of layer {layer_name!r}: no recording is under way, so its "
                f"lengths could never be updated; put `recorder.recording(key)` around the capture",
            )
        records = recording.records
        if layer_name in records.records or layer_name in records.fixed:
            raise RecordingError(
                f"capturing attention of layer {layer_name!r} under key {records.key!r}: the name "
                f"is recorded already; give each launch of a graph a name of its own, and several "
                f"launches of one layer different launch=",
            )
        return records

    def _await_producers(
        self, layer_name: str, kind: Kind, arguments: Mapping[str, object]
    ) -> None:
        recording = self._recording
        assert recording is not None  # noqa: S101
        metadata, producers = metadata_arguments(kind), recording.records.producers
        if producers is not None:
            producers.before_layer(layer_name, arguments, metadata)
        elif metadata:
            raise RecordingError(
                f"capturing layer {layer_name!r} under key {recording.records.key!r}: "
                f"{kind.operator} reads {', '.join(map(repr, sorted(metadata)))}, which a producer "
                f"makes in every step, and no producers are recorded; enter ProducerLane.recording "
                f"in front of it"
            )
        tensors = tensors_in(list(arguments.values()))
        recording.read[layer_name] = [MemorySpan.of(tensor) for tensor in tensors]

    def _capture(
        self,
        layer_name: str,
        kind: AttentionKind,
        arguments: Mapping[str, object],
        group: str,
    ) -> tuple[torch.Tensor, ...]:
        recording = self._recording
        assert recording is not None  # noqa: S101
        key = recording.records.key
        geometry = kind.geometry(arguments)
        operator = find_operator(kind.operator)
        stream = self.device.current_stream()
        outputs = kind.make_outputs(arguments)
        workspace = self.workspace.take(
            self._needs.of(kind, arguments),
            stream_index=recording.stream_index(stream),
            device=outputs[0].device,
        )
        launch = kind.launch_arguments(arguments, outputs, workspace)

        event = self.device.create_external_event()
        event.wait(stream)
        event.reset(stream)
        handle = self._launch(layer_name, kind.operator, operator, launch, stream)

        for name, tensor in self._watched(kind, arguments):
            recording.records.watch.add(tensor, f"{name!r} of layer {layer_name!r}")
        weak = {
            name: recording.weak.replace(value)
            for name, value in launch.items()
            if name != "workspace"
        }
        if not recording.records.is_guarded:
            recording.records.guard(self.device)
        recording.records.records[layer_name] = Record(
            layer_name=layer_name,
            key=key,
            group=group,
            kind=kind,
            handle=handle,
            event=event,
            arguments={**weak, "workspace": workspace},
            geometry=geometry,
        )
        return outputs

    def _watched(
        self, kind: AttentionKind, arguments: Mapping[str, object]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        watched = kind.persistent_arguments(arguments)
        if self._watch_inputs:
            watched |= arguments.keys() - kind.step_arguments
        for name in sorted(watched):
            tensor = arguments[name]
            if isinstance(tensor, torch.Tensor):
                yield name, tensor

    def _launch(
        self,
        layer_name: str,
        name: str,
        operator: OpOverload,
        launch: Mapping[str, object],
        stream: Stream,
    ) -> object:
        self.device.begin_task_group(stream)
        try:
            operator(**launch)
        except Exception as error:
            message = (
                f"capturing attention of layer {layer_name!r}: {name} failed inside its task "
                f"group ({error}); abandon this capture"
            )
            try:
                self.device.end_task_group(stream)
            except Exception as second:  # noqa: BLE001
                message += f"; closing the task group failed too ({second})"
            raise CaptureError(message, layer_name=layer_name, operator=name) from error
        return self.device.end_task_group(stream)
