"""A bridge from torch_npu's own recording: graphs of ``auto_dispatch_capture=True`` on a lane.

torch_npu records attention while it captures with ``torch.npu.graph(graph,
auto_dispatch_capture=True)``, and ``NPUGraph.update(cpu_update_input=[...])`` rewrites it: without
a check of names, in Python for each layer, and in an order that holds only while the host waits for
each step. Here the same records become a plan, and the same input a step of an update lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from attn_update.automatic_recording import DEFAULT_OPERATORS, number_layers
from attn_update.errors import RecordingError, StepParameterError, WorkspaceError, nearest
from attn_update.kind import needs_update
from attn_update.record import KeyRecords, Record
from attn_update.step_parameters import StepParameters
from attn_update.update_plan import UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import torch

    from attn_update.kind import AttentionKind, Kind
    from attn_update.recorder import Recorder
    from attn_update.step_parameters import Lengths
    from attn_update.update_lane import UpdateLane


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

    torch_npu keeps no more than weak tensors, so a freed cache is not noticed here.

    Args:
        recorder: Takes the records under `key`; nothing else may be recorded under it.
        key: The graph key.
        graph: Captured by ``torch.npu.graph(graph, auto_dispatch_capture=True)``.
        lane: Of the graph's device.
        per_layer: Whether a step may give each layer an input of its own. Otherwise all layers
            share one, which is checked once.
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
        per_layer: bool = False,
        operators: Mapping[str, str] = DEFAULT_OPERATORS,
        layer_name: Callable[[str, int], str] = number_layers,
    ) -> None:
        records = KeyRecords(key)
        for position, dispatched in enumerate(_dispatch_records(graph, key)):
            name = layer_name(dispatched.op_cache_entry.name(), position)
            group = name if per_layer else "default"
            record = _read_record(dispatched, recorder.kinds, operators, name, group, key)
            if name in records.records:
                raise RecordingError(
                    f"reading the records of key {key!r}: two layers are named {name!r}",
                )
            records.records[name] = record
        recorder.adopt(records)
        self.plan = UpdatePlan.compile(recorder, key)
        self._graph = graph
        self._lane = lane
        # What a step leaves out keeps its latest value, as NPUGraph.update does.
        self._latest: dict[str, dict[str, Lengths]] = {}
        for record in records.records.values():
            names = self.plan.groups[record.group].arguments
            captured: dict[str, Any] = {name: record.arguments[name] for name in names}
            self._latest[record.group] = captured

    def update(self, cpu_update_input: Sequence[Mapping[str, Lengths]]) -> None:
        """Replay the graph with new lengths; returns as soon as all is queued.

        Args:
            cpu_update_input: One mapping from argument names to lengths for all layers, or, with
                `per_layer`, one for each in the order of capture. A name that is left out keeps
                its latest value.

        Raises:
            StepParameterError: The number of inputs, a name or a value does not fit; nothing was
                launched, and nothing waits.
            UpdateError: See `UpdateLane.run`.
        """
        groups = list(self._latest)
        num_inputs = len(cpu_update_input)
        if num_inputs not in (1, len(groups)):
            raise StepParameterError(
                f"updating key {self.plan.key!r}: expected 1 input"
                f"{f' or {len(groups)}, one for each layer' if len(groups) > 1 else ''}, found "
                f"{num_inputs}; inputs for single layers need per_layer=True",
            )
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


def _dispatch_records(graph: DispatchedGraph, key: Hashable) -> Sequence[Any]:
    mode = getattr(graph, "graph_dispatch_mode", None)
    records: Sequence[Any] | None = getattr(mode, "graph_dispatch_records", None)
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
    group: str,
    key: Hashable,
) -> Record:
    operator: torch._ops.OpOverload = dispatched.op_cache_entry
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
    names = [argument.name for argument in operator._schema.arguments]  # noqa: SLF001
    arguments = {**dict(zip(names, dispatched.args, strict=False)), **dispatched.kwargs}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    _check_workspace(arguments, kind, what)
    return Record(
        layer_name=layer_name,
        key=key,
        group=group,
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
