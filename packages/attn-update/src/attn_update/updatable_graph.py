"""A bridge from torch_npu's own recording: graphs of ``auto_dispatch_capture=True`` on a lane.

torch_npu records attention while it captures with ``torch.npu.graph(graph,
auto_dispatch_capture=True)``, and ``NPUGraph.update(cpu_update_input=[...])`` rewrites it: without
a check of names, in Python for each layer, and in an order that holds only while the host waits for
each step. Here the same records become a plan, and the same input a step of an update lane.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from attn_update.errors import RecordingError, StepParameterError, WorkspaceError, nearest
from attn_update.kinds.kind import needs_update
from attn_update.planning.step_parameters import StepParameters
from attn_update.planning.update_plan import UpdatePlan
from attn_update.recording.automatic_recording import DEFAULT_OPERATORS, number_layers
from attn_update.recording.record import KeyRecords, Record
from attn_update.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from attn_update.kinds.kind import AttentionKind, Kind
    from attn_update.lane.update_lane import UpdateLane
    from attn_update.planning.step_parameters import Lengths
    from attn_update.recording.recorder import Recorder
    from attn_update.torch_internals import OpOverload


class DispatchedGraph(Protocol):
    """A graph that torch_npu captured and recorded; `torch.npu.NPUGraph` fits."""

    @property
    def graph_dispatch_mode(self) -> Any:
        """What holds the records, in the order of capture, as ``graph_dispatch_records``."""

    def replay(self) -> None:
        """Queue the captured work on the current stream."""


class UpdatableGraph:
    """A graph that torch_npu recorded, replayed and updated on a lane.

    It replaces the pair ``graph.replay()`` and ``graph.update(cpu_update_input=...)``, in either
    order and on whatever threads, by one call, `update`. Checked before anything is launched: the
    number of inputs, the names in them, and all that `UpdatePlan.check` checks.

    The graphs of a target and a draft model, and of all their batch sizes, share one recorder and
    one lane. Call `release` before the graph is destroyed or captured again.

    torch_npu keeps no more than weak tensors, so a freed cache is not noticed here.

    Args:
        recorder: Takes the records under `key`; nothing else may be recorded under it.
        key: The graph key.
        graph: Captured by ``torch.npu.graph(graph, auto_dispatch_capture=True)``.
        lane: Of the graph's device.
        operators: From operators to kind names of the recorder's table.
        layer_name: Names a launch by its operator and its position.

    Raises:
        RecordingError: The graph has no records, one of an operator without a kind, or the key is
            recorded already.
        StepParameterError: The captured lengths break the rules of their kind.
        WorkspaceError: A launch was captured with a workspace, of the caller's, that does not
            suffice for all lengths that a step may bring.
    """

    def __init__(
        self,
        recorder: Recorder,
        key: Hashable,
        graph: DispatchedGraph,
        lane: UpdateLane,
        *,
        operators: Mapping[str, str] = DEFAULT_OPERATORS,
        layer_name: Callable[[str, int], str] = number_layers,
    ) -> None:
        records = KeyRecords(key)
        for position, dispatched in enumerate(_dispatch_records(graph, key)):
            name = layer_name(dispatched.op_cache_entry.name(), position)
            record = _read_record(dispatched, recorder.kinds, operators, name, key)
            if name in records.records:
                raise RecordingError(
                    f"reading the records of key {key!r}: two layers are named {name!r}",
                )
            records.records[name] = record
        recorder.adopt(records)
        self.plan = UpdatePlan.compile(recorder, key)
        self._recorder = recorder
        self._graph = graph
        self._lane = lane
        # What a step leaves out keeps its latest value, as NPUGraph.update does.
        self._latest = self._captured()

    @staticmethod
    def has_records(graph: object) -> bool:
        """Return whether torch_npu recorded attention in a graph.

        One that was captured without ``auto_dispatch_capture=True``, or whose attention reads its
        lengths on the device, has none: it is just replayed.

        Args:
            graph: Captured by torch_npu.
        """
        return bool(_find_records(graph))

    def release(self) -> None:
        """Forget the records; call it when no replay is under way. Again is no error."""
        if not self.plan.records.released:
            self._recorder.release(self.plan.key)

    def update(self, cpu_update_input: Sequence[Mapping[str, Lengths]]) -> None:
        """Replay the graph with new lengths; returns as soon as all is queued.

        Args:
            cpu_update_input: One mapping from argument names to lengths for all launches, or one
                for each in the order of capture, as for the draft steps of a graph. A name that is
                left out keeps its latest value.

        Raises:
            UnknownKeyError: It was released.
            StepParameterError: The number of inputs, a name or a value does not fit; nothing was
                launched, and nothing waits.
            UpdateError: See `UpdateLane.run`.
        """
        num_inputs, num_records = len(cpu_update_input), len(self.plan.updates)
        if num_inputs not in (1, num_records):
            raise StepParameterError(
                f"updating key {self.plan.key!r}: expected 1 input, or {num_records}, one for each "
                f"launch in the order of capture, found {num_inputs}",
            )
        if num_inputs > len(self._latest):
            self._part()
        groups = list(self._latest)
        given = dict(zip(groups, list(cpu_update_input) * (len(groups) // num_inputs), strict=True))
        for group, values in given.items():
            declared = self.plan.groups[group].arguments
            for name in values:
                if name not in declared:
                    raise StepParameterError(
                        f"updating key {self.plan.key!r}: group {group!r} has no step argument "
                        f"{name!r}; {nearest(name, declared)}",
                    )
        merged = {group: {**self._latest[group], **given[group]} for group in groups}
        self._lane.run(
            self.plan, StepParameters(key=self.plan.key, groups=merged), self._graph.replay
        )
        self._latest = merged

    def _captured(self) -> dict[str, dict[str, Lengths]]:
        latest: dict[str, dict[str, Lengths]] = {}
        for record in self.plan.records.records.values():
            names = self.plan.groups[record.group].arguments
            captured: dict[str, Any] = {name: record.arguments[name] for name in names}
            latest[record.group] = captured
        return latest

    def _part(self) -> None:
        """Give each launch a parameter group of its own: it was given an input of its own."""
        (shared,) = self._latest.values()
        records = self.plan.records
        self.plan.check_key(StepParameters(key=records.key))
        for name, record in records.records.items():
            records.records[name] = replace(record, group=name)
        self.plan = UpdatePlan.compile(self._recorder, records.key)
        self._latest = {name: dict(shared) for name in self._captured()}


def _find_records(graph: object) -> Sequence[Any] | None:
    mode = getattr(graph, "graph_dispatch_mode", None)
    return getattr(mode, "graph_dispatch_records", None)


def _dispatch_records(graph: DispatchedGraph, key: Hashable) -> Sequence[Any]:
    records = _find_records(graph)
    if not records:
        raise RecordingError(
            f"reading the records of key {key!r}: expected a graph with recorded attention, found "
            f"{type(graph).__name__} with {'none' if records is None else 'no'} records; capture "
            f"it by torch.npu.graph(graph, auto_dispatch_capture=True)",
        )
    return records


def _read_record(
    dispatched: Any,
    kinds: Mapping[str, Kind],
    operators: Mapping[str, str],
    layer_name: str,
    key: Hashable,
) -> Record:
    operator: OpOverload = dispatched.op_cache_entry
    called: str = dispatched.op_cache_entry.name()
    what = f"reading the record {layer_name!r} of key {key!r}"
    kind_name = operators.get(called)
    kind = None if kind_name is None else kinds.get(kind_name)
    if kind_name is None or kind is None:
        raise RecordingError(
            f"{what}: there is no kind for {called}, so its lengths could never be "
            f"updated; {nearest(called, operators)}",
        )
    if called != kind.operator or not needs_update(kind):
        raise RecordingError(
            f"{what}: {called} was captured, but kind {kind_name!r} updates {kind.operator}",
        )
    names = [argument.name for argument in schema_of(operator).arguments]
    arguments = {**dict(zip(names, dispatched.args, strict=False)), **dispatched.kwargs}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    _check_workspace(arguments, kind, what)
    return Record(
        layer_name=layer_name,
        key=key,
        group="default",
        kind_name=kind_name,
        kind=kind,
        handle=dispatched.handle,
        event=dispatched.event,
        arguments=arguments,
        geometry=kind.geometry(arguments),
    )


def _check_workspace(arguments: Mapping[str, Any], kind: AttentionKind, what: str) -> None:
    workspace = arguments.get("workspace")
    if workspace is None:  # the operator takes one of its own at every launch
        return
    given = {name: value for name, value in arguments.items() if name != "workspace"}
    needed, found = kind.workspace_bytes(given), int(workspace.nbytes)
    if found < needed:
        raise WorkspaceError(
            f"{what}: expected a workspace of {needed} bytes, which suffice for all lengths, found "
            f"{found}; capture without a workspace, or with one of the largest size",
        )
