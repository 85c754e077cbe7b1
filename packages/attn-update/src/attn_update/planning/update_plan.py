"""Update plans: map the step parameters of one graph key to its captured launches.

A plan is compiled once, after the capture. Everything that is the same in every step is decided and
checked then: which group belongs to which layer, which names exist, which operator is called with
which arguments. A step then only checks values, once for each distinct set of length rules and not
once for each layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_update.errors import (
    DeadTensorError,
    PlanError,
    StepParameterError,
    UnknownNameError,
    nearest,
)
from attn_update.kinds.kind import RuledKind
from attn_update.operator_lookup import find_operator
from attn_update.task_device import FusedUpdateDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from attn_update.kinds.attention_geometry import LengthRule, TensorForm
    from attn_update.kinds.kind import AttentionKind
    from attn_update.kinds.lengths import Lengths
    from attn_update.recording.record import KeyRecords, Record
    from attn_update.recording.recorder import Recorder
    from attn_update.task_device import ExternalEvent


@dataclass(frozen=True, kw_only=True)
class StepParameters:
    """The arguments of one step, by parameter group and argument name.

    Attributes:
        key: The graph key; a plan of another key rejects them.
        groups: For each parameter group the value of each declared argument. Lengths are
            one-dimensional integers on the host and are copied during the call. A rebound tensor
            (a block table) is on the device and belongs to the caller, who must keep it alive and
            unchanged until the replay of this step has finished.
    """

    key: Hashable
    groups: Mapping[str, Mapping[str, Lengths]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """The arguments that step parameters set for the layers of one group.

    Attributes:
        arguments: Names among the step arguments of the layers' kinds. Other step arguments keep
            their captured values.
        pad: Whether a batch smaller than the captured one is padded by the kind's rule. If false,
            a smaller batch is an error.
    """

    arguments: frozenset[str]
    pad: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedUpdate:
    """One launch, ready to be launched again.

    Attributes:
        layer_name: The layer.
        operator: Name of the operator, for errors.
        call: The operator; accepts `launch` as keyword arguments.
        fused: Update, launch and record in one call of the device, or None.
        launch: The captured keyword arguments.
        handle: The task group.
        event: The external event that the captured graph waits for.
        slot: Index of the step's prepared values that apply to the launch.
    """

    layer_name: str
    operator: str
    call: Callable[..., object]
    fused: Callable[..., object] | None
    launch: dict[str, Any]
    handle: object
    event: ExternalEvent
    slot: int


@dataclass(frozen=True, kw_only=True)
class _Slot:
    group: str
    kind: AttentionKind
    geometry: Hashable
    what: str
    pad: bool


class CheckedStep(NamedTuple):
    """The checked values of one step, in the form that the operators expect.

    Attributes:
        values: For each slot of the plan the arguments by name.
    """

    values: tuple[Mapping[str, object], ...]


class UpdatePlan:
    """The compiled updates of one graph key; immutable. Created by `UpdatePlan.compile`.

    Attributes:
        key: The graph key.
        records: The records it was compiled from.
        updates: The updates in the order of capture.
        groups: The declared parameter groups by name.
        slot_sizes: For each slot the number of updates it applies to.
    """

    def __init__(
        self,
        records: KeyRecords,
        groups: Mapping[str, ParameterGroup],
        updates: tuple[PlannedUpdate, ...],
        slots: tuple[_Slot, ...],
    ) -> None:
        self.key = records.key
        self.records = records
        self.updates = updates
        self.groups = dict(groups)
        self.slot_sizes = tuple(
            sum(update.slot == slot for update in updates) for slot in range(len(slots))
        )
        self._slots = slots

    @classmethod
    def compile(
        cls,
        recorder: Recorder,
        key: Hashable,
        *,
        groups: Mapping[str, ParameterGroup] | None = None,
        layers: Iterable[str] | None = None,
        fused: bool = True,
    ) -> UpdatePlan:
        """Compile and validate the plan of a captured graph.

        Args:
            recorder: The recorder of the capture.
            key: The graph key.
            groups: The declared parameter groups; every recorded group must be declared and have a
                layer. By default every recorded group, with all step arguments that its layers were
                captured with, without padding.
            layers: The exact names of the layers that must have been recorded. By default any.
            fused: Whether to use the device's fused update calls if it has them.

        Raises:
            UnknownNameError: The key was never recorded, or was released.
            PlanError: The recorded layers are not `layers`, or a group is not declared, has no
                layer, or names an argument that a layer does not have.
        """
        records = recorder.records(key)
        recorded = list(records.records.values())
        if layers is not None:
            _check_layers(records, frozenset(layers))
        declared = _derive_groups(recorded) if groups is None else groups
        _check_groups(key, recorded, declared)
        device = recorder.device
        fusing = device if fused and isinstance(device, FusedUpdateDevice) else None
        slots: dict[_Slot, int] = {}
        updates = []
        for record in recorded:
            slot = _Slot(
                group=record.group,
                kind=record.kind,
                geometry=record.geometry,
                what=f"group {record.group!r} of key {key!r}",
                pad=declared[record.group].pad,
            )
            operator = record.kind.operator
            updates.append(
                PlannedUpdate(
                    layer_name=record.layer_name,
                    operator=operator,
                    call=find_operator(operator),
                    fused=None if fusing is None else fusing.fused_update(operator),
                    launch=dict(record.arguments),
                    handle=record.handle,
                    event=record.event,
                    slot=slots.setdefault(slot, len(slots)),
                ),
            )
        return cls(records, declared, tuple(updates), tuple(slots))

    def check(self, parameters: StepParameters) -> CheckedStep:
        """Check the parameters of one step; nothing is launched.

        Args:
            parameters: The parameters, which are copied; you may reuse the lists at once.

        Raises:
            UnknownNameError: The key of this plan was released.
            DeadTensorError: Memory that a captured launch reads was freed.
            StepParameterError: The parameters are for another key, or a group, a name or a value
                is invalid.
        """
        self.check_key(parameters)
        self._check_names(parameters)
        groups = parameters.groups
        values = [
            slot.kind.prepare(groups[slot.group], slot.geometry, pad=slot.pad, what=slot.what)
            for slot in self._slots
        ]
        return CheckedStep(tuple(values))

    def check_key(self, parameters: StepParameters) -> None:
        """Check everything but the values of a step: its key, and whether its graph can replay.

        Raises:
            UnknownNameError: The key of this plan was released.
            DeadTensorError: Memory that a captured launch reads was freed.
            StepParameterError: The parameters are for another key.
        """
        if self.records.released:
            raise UnknownNameError(
                f"checking a step of key {self.key!r}: the key was released after this plan was "
                f"compiled; compile a plan for the new capture",
            )
        if self.records.watch.dead:
            raise DeadTensorError(
                f"checking a step of key {self.key!r}: the memory of "
                f"{', '.join(sorted(self.records.watch.dead))} was freed, and the captured graph "
                f"would read it; keep it alive, or release the key and capture again",
            )
        if parameters.key != self.key:
            raise StepParameterError(
                f"checking a step: the parameters are for key {parameters.key!r}, the plan is "
                f"for key {self.key!r}",
            )

    def step_rules(self) -> list[Mapping[str, LengthRule | TensorForm]] | None:
        """Return the argument rules of each slot, if all arguments are passed unchanged.

        Returns:
            None if a kind accepts other values, or converts its values.
        """
        rules: list[Mapping[str, LengthRule | TensorForm]] = []
        for slot in self._slots:
            given = self.groups[slot.group].arguments
            kind = slot.kind
            known = kind.step_rules(slot.geometry) if isinstance(kind, RuledKind) else {}
            if not given or not given <= known.keys():
                return None
            rules.append({name: known[name] for name in sorted(given)})
        return rules

    def group_of(self, slot: int) -> str:
        """Return the parameter group of a slot."""
        return self._slots[slot].group

    def _check_names(self, parameters: StepParameters) -> None:
        given = parameters.groups
        if given.keys() != self.groups.keys():
            _refuse_names(
                f"checking a step of key {self.key!r}", "group", set(given), set(self.groups)
            )
        for name, group in self.groups.items():
            if given[name].keys() != group.arguments:
                _refuse_names(
                    f"checking group {name!r} of key {self.key!r}",
                    "argument",
                    set(given[name]),
                    set(group.arguments),
                )


def _refuse_names(what: str, noun: str, given: set[str], declared: set[str]) -> None:
    for name in sorted(given - declared):
        raise StepParameterError(
            f"{what}: {noun} {name!r} is not declared; {nearest(name, declared)}"
        )
    missing = ", ".join(map(repr, sorted(declared - given)))
    raise StepParameterError(f"{what}: {noun} {missing} is declared and was not given")


def _derive_groups(records: list[Record]) -> dict[str, ParameterGroup]:
    names: dict[str, frozenset[str]] = {}
    for record in records:
        captured = record.kind.step_arguments & record.arguments.keys()
        names[record.group] = names.get(record.group, frozenset()) | captured
    return {group: ParameterGroup(arguments=arguments) for group, arguments in names.items()}


def _check_layers(records: KeyRecords, layers: frozenset[str]) -> None:
    recorded = records.records.keys() | records.fixed
    missing = sorted(layers - recorded)
    if missing:
        raise PlanError(
            f"compiling the plan of key {records.key!r}: layer {missing[0]!r} was not recorded "
            f"({len(missing)} missing in all); {nearest(missing[0], recorded)}",
        )
    unexpected = sorted(recorded - layers)
    if unexpected:
        raise PlanError(
            f"compiling the plan of key {records.key!r}: layer {unexpected[0]!r} was recorded and "
            f"not expected ({len(unexpected)} in all); {nearest(unexpected[0], layers)}",
        )


def _check_groups(
    key: Hashable,
    records: list[Record],
    groups: Mapping[str, ParameterGroup],
) -> None:
    what = f"compiling the plan of key {key!r}"
    used = {record.group for record in records}
    for name in sorted(groups.keys() - used):
        raise PlanError(f"{what}: group {name!r} feeds no layer; {nearest(name, used)}")
    for record in records:
        group = groups.get(record.group)
        if group is None:
            raise PlanError(
                f"{what}: layer {record.layer_name!r} takes its parameters from group "
                f"{record.group!r}, which is not declared; {nearest(record.group, groups)}",
            )
        for name in sorted(group.arguments):
            if name not in record.kind.step_arguments:
                raise PlanError(
                    f"{what}: {record.kind.operator} of layer {record.layer_name!r} has no "
                    f"step argument {name!r}; {nearest(name, record.kind.step_arguments)}",
                )
            if name not in record.arguments:
                raise PlanError(
                    f"{what}: layer {record.layer_name!r} was captured without {name!r}, and a "
                    f"launch cannot gain an argument; capture with it, or do not declare it",
                )
