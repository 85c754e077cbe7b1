"""Replays and updates graphs that torch_npu or an engine captured.

torch_npu records attention while it captures with ``torch.npu.graph(graph,
auto_dispatch_capture=True)``, and ``NPUGraph.update(cpu_update_input=[...])`` updates it: without
checking names, in Python for each layer, and in an order that is only correct if the host waits in
each step. Some engines keep such records themselves, as vLLM-Ascend does in its ``GraphParams``,
and update in the same way. This module turns either into a plan, and the same input into a step of
an update lane.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from attn_update.errors import ArgumentError, RecordingError, StepParameterError, nearest
from attn_update.kinds.kind import needs_update
from attn_update.operator_lookup import bind_arguments, find_operator
from attn_update.planning.update_plan import StepParameters, UpdatePlan
from attn_update.recording.automatic_recording import DEFAULT_OPERATORS, number_layers
from attn_update.recording.record import KeyRecords, Record
from attn_update.recording.workspace import WorkspaceNeeds
from attn_update.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from attn_update.kinds.kind import AttentionKind, Kind
    from attn_update.kinds.lengths import Lengths
    from attn_update.lane.update_lane import UpdateLane
    from attn_update.recording.recorder import Recorder
    from attn_update.task_device import ExternalEvent


class DispatchedGraph(Protocol):
    """A captured graph with updatable launches; `torch.npu.NPUGraph` implements it.

    If torch_npu recorded them, they are in ``graph_dispatch_mode``.
    """

    def replay(self) -> None:
        """Queue the captured work on the current stream."""


@dataclass(frozen=True, kw_only=True)
class CapturedLaunch:
    """An attention launch that an engine captured in a task group of its own.

    Attributes:
        layer_name: Name of the launch, unique for each graph.
        operator: The operator with its overload: ``npu::npu_fused_infer_attention_score.out``.
        handle: The result of ``torch.npu.graph_task_group_end``.
        event: The external event that the graph waits for, and unsets, before the launch.
        arguments: All arguments of the operator by name, including ``workspace``, ``out`` and
            positional ones. References are kept as they are: if the engine refers weakly to its
            tensors, so does the record.
        group: The parameter group: layers that share their step parameters.
    """

    layer_name: str
    operator: str
    handle: object
    event: ExternalEvent
    arguments: Mapping[str, object]
    group: str = "default"


class UpdatableGraph:
    """A graph that torch_npu or an engine recorded, replayed and updated on a lane.

    One call of `update` replaces ``graph.replay()`` and ``graph.update(cpu_update_input=...)``, in
    either order and on any threads. It checks the number of inputs, their names, and everything
    that `UpdatePlan.check` checks before anything is launched. If your engine replays the graph
    itself, pass `plan` to `UpdateLane.begin` instead.

    The graphs of a target and a draft model, and of all their batch sizes, can share one recorder
    and one lane. Call `release` before the graph is destroyed or captured again. From now on, do
    not update the graph in any other way; no other update may be in progress.

    torch_npu keeps only weak tensors, so a freed cache is not noticed here.

    Args:
        recorder: Receives the records under `key`; nothing else may be recorded under it.
        key: The graph key.
        graph: Captured by ``torch.npu.graph(graph, auto_dispatch_capture=True)``, or in any way
            if `launches` are given.
        lane: Lane of the graph's device.
        operators: Maps operators to kind names in the recorder's table.
        layer_name: Names a launch that torch_npu recorded, by its operator and its position.
        launches: Launches that an engine captured itself, in the order of capture; by default those
            that torch_npu recorded in the graph.

    Attributes:
        plan: The plan for a lane; replaced once launches are given separate inputs.

    Raises:
        RecordingError: There are no records; a record has an operator without a kind, an unknown
            argument, or lacks one; two have the same name; or the key is already recorded.
        UnknownNameError: torch has no operator with a given name.
        StepParameterError: The captured lengths violate the rules of their kind.
        ArgumentError: A launch was captured with a workspace of the caller's that does not
            suffice for all lengths of later steps.
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
        launches: Sequence[CapturedLaunch] | None = None,
    ) -> None:
        if launches is None:
            launches = _read_dispatched(graph, key, layer_name)
        elif not launches:
            raise RecordingError(
                f"adopting the launches of key {key!r}: expected one at least, found none; a graph "
                f"without updatable attention is just replayed"
            )
        records, needs = KeyRecords(key, graph), WorkspaceNeeds()
        for launch in launches:
            if launch.layer_name in records.records:
                raise RecordingError(
                    f"reading the records of key {key!r}: two layers are named "
                    f"{launch.layer_name!r}",
                )
            record = _make_record(launch, recorder.kinds, operators, key, needs)
            records.records[launch.layer_name] = record
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

        A graph that was captured without ``auto_dispatch_capture=True``, or whose attention reads
        its lengths on the device, has no records; simply replay it.

        Args:
            graph: A graph captured by torch_npu.
        """
        return bool(_find_records(graph))

    def release(self) -> None:
        """Release the records, while no replay is in progress; a second call does nothing."""
        if not self.plan.records.released:
            self._recorder.release(self.plan.key)

    def update(self, cpu_update_input: Sequence[Mapping[str, Lengths]]) -> None:
        """Replay the graph with new lengths; returns as soon as everything is queued.

        Args:
            cpu_update_input: Maps argument names to lengths. Pass one mapping for all launches, or
                one for each in the order of capture (for draft steps in one graph), or one for each
                group of launches in the order of their first. Names that are omitted keep their
                latest values.

        Raises:
            UnknownNameError: The records were released.
            StepParameterError: The number of inputs, a name or a value is invalid; nothing was
                launched, and nothing waits.
            UpdateError: See `UpdateLane.run`.
        """
        num_inputs, num_records = len(cpu_update_input), len(self.plan.updates)
        if num_inputs not in (1, len(self._latest), num_records):
            raise StepParameterError(
                f"updating key {self.plan.key!r}: expected 1 input, or {num_records}, one for each "
                f"launch in the order of capture, or {len(self._latest)}, one for each group; "
                f"found {num_inputs}",
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
        """Put each launch into a parameter group of its own, because each was given an input."""
        records, latest = self.plan.records, {}
        self.plan.check_key(StepParameters(key=records.key))
        for name, record in records.records.items():
            latest[name] = dict(self._latest[record.group])
            records.records[name] = replace(record, group=name)
        self.plan = UpdatePlan.compile(self._recorder, records.key)
        self._latest = latest


def _find_records(graph: object) -> Sequence[Any] | None:
    mode = getattr(graph, "graph_dispatch_mode", None)
    return getattr(mode, "graph_dispatch_records", None)


def _read_dispatched(
    graph: DispatchedGraph, key: Hashable, layer_name: Callable[[str, int], str]
) -> list[CapturedLaunch]:
    """Return the launches that torch_npu recorded in a graph."""
    records = _find_records(graph)
    if not records:
        raise RecordingError(
            f"reading the records of key {key!r}: expected a graph with recorded attention, found "
            f"{type(graph).__name__} with {'none' if records is None else 'no'} records; capture "
            f"it by torch.npu.graph(graph, auto_dispatch_capture=True)",
        )
    launches = []
    for position, dispatched in enumerate(records):
        operator = dispatched.op_cache_entry
        launches.append(
            CapturedLaunch(
                layer_name=layer_name(operator.name(), position),
                operator=operator.name(),
                handle=dispatched.handle,
                event=dispatched.event,
                arguments=bind_arguments(operator, dispatched.args, dispatched.kwargs),
            )
        )
    return launches


def _make_record(
    launch: CapturedLaunch,
    kinds: Mapping[str, Kind],
    operators: Mapping[str, str],
    key: Hashable,
    needs: WorkspaceNeeds,
) -> Record:
    called = launch.operator
    what = f"reading the record {launch.layer_name!r} of key {key!r}"
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
    arguments = {name: value for name, value in launch.arguments.items() if value is not None}
    _check_arguments(arguments, called, what)
    geometry = kind.geometry(arguments)
    _check_workspace(arguments, kind, needs, what)
    return Record(
        layer_name=launch.layer_name,
        key=key,
        group=launch.group,
        kind=kind,
        handle=launch.handle,
        event=launch.event,
        arguments=arguments,
        geometry=geometry,
    )


def _check_arguments(arguments: Mapping[str, object], called: str, what: str) -> None:
    known = schema_of(find_operator(called)).arguments
    names = [argument.name for argument in known]
    for name in sorted(arguments.keys() - set(names)):
        raise RecordingError(f"{what}: {called} has no argument {name!r}; {nearest(name, names)}")
    for argument in known:
        if argument.name not in arguments and not argument.has_default_value():
            raise RecordingError(
                f"{what}: expected all that {called} was launched with, found no "
                f"{argument.name!r}; give it too",
            )


def _check_workspace(
    arguments: Mapping[str, Any], kind: AttentionKind, needs: WorkspaceNeeds, what: str
) -> None:
    workspace = arguments.get("workspace")
    if workspace is None:  # the operator takes one of its own at every launch
        return
    given = {name: value for name, value in arguments.items() if name != "workspace"}
    needed, found = needs.of(kind, given), int(workspace.nbytes)
    if found < needed:
        raise ArgumentError(
            f"{what}: expected a workspace of {needed} bytes, which suffice for all lengths, found "
            f"{found}; capture without a workspace, or with one of the largest size",
        )
