"""The attention tasks of a graph that vllm-ascend 0.30 captured, updated by an update lane.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from attn_update import CapturedLaunch, Recorder, StepParameterError, UpdatableGraph
from attn_update.kinds import FIA_V1, FIA_V2, FusedInferAttention, PagedAttention

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from attn_update import DispatchedGraph, Lengths, TaskDevice, UpdateLane

_KINDS: Mapping[str, FusedInferAttention | PagedAttention] = MappingProxyType(
    {
        "fused": FusedInferAttention(family=FIA_V1, rebind_block_table=True),
        "fused v2": FusedInferAttention(family=FIA_V2, rebind_block_table=True),
        "paged": PagedAttention(rebind_block_table=True),
    }
)
_OPERATORS = MappingProxyType({kind.operator: name for name, kind in _KINDS.items()})


class StepSource(Protocol):
    """What the engine gives to `resolve_tasks`: where the tasks read the arguments of a step.

    A source with an attribute ``context``, a mapping of each layer's metadata by name, is that of a
    model; one without is that of a draft, which runs each layer once in each of its steps.
    """

    def get(self, provider: Any) -> Sequence[Mapping[str, Any]]:
        """Return the arguments of each task of a provider, in the order of capture."""


def make_recorder(device: TaskDevice) -> Recorder:
    """Return a recorder for the graphs of one model."""
    return Recorder(device, kinds=dict(_KINDS))


class TaskUpdates:
    """Replays one graph and updates its tasks.

    Tasks that get the same objects in a step form a parameter group; the provider of its first task
    reads for all of them.

    Args:
        graph: Captured by the engine.
        tasks: Of the graph, as the engine holds them: ``operation``, ``kwargs``, ``provider``,
            ``provider_index``, ``handle`` and ``event``. From now on nobody else may update them.
        recorder: From `make_recorder`; takes the records under `key`.
        lane: Of the device.
        key: The engine's batch descriptor.
        source: Of the capture, or of any step of this graph.

    Raises:
        AttnUpdateError: From `attn_update.UpdatableGraph`: attention of another kind, or with a
            workspace that does not suffice for all lengths. Nothing was changed.
    """

    def __init__(
        self,
        graph: DispatchedGraph,
        tasks: Sequence[Any],
        recorder: Recorder,
        lane: UpdateLane,
        key: Hashable,
        source: StepSource,
    ) -> None:
        self._key = key
        self._groups = _find_groups(tasks, source, key)
        named = {position: group.name for group in self._groups for position in group.positions}
        launches = [
            CapturedLaunch(
                layer_name=_launch_name(task, position),
                operator=_operator_name(task.operation),
                handle=task.handle,
                event=task.event,
                arguments=_step_arguments(task, source),
                group=named[position],
            )
            for position, task in enumerate(tasks)
        ]
        self._updatable = UpdatableGraph(
            recorder, key, graph, lane, operators=_OPERATORS, launches=launches
        )

    def replay(self, source: StepSource | None) -> None:
        """Replay the graph and issue the updates of its tasks; returns as soon as all is queued.

        Raises:
            StepParameterError: There is none, the layers share their metadata otherwise than at
                capture, or the lengths do not fit; nothing was launched.
            UpdateError: See `attn_update.UpdateLane.run`.
        """
        if source is None or getattr(source, "context", source) is None:
            raise StepParameterError(
                f"replaying the graph of {self._key}: expected the metadata of its layers, found "
                f"none; run a step without attention eagerly"
            )
        self._updatable.update([group.read(source, self._key) for group in self._groups])


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Tasks that get the same objects in a step.

    Attributes:
        task: The first, whose provider reads the arguments that a step changes.
        count: How many tasks its provider has.
        layers: The names under which their metadata is found.
        positions: Of the tasks in the graph.
        names: Of the arguments that were read at capture.
    """

    task: Any
    count: int
    layers: tuple[str, ...]
    positions: tuple[int, ...]
    names: frozenset[str]

    @property
    def name(self) -> str:
        """Names the parameter group."""
        return _launch_name(self.task, self.positions[0])

    def read(self, source: StepSource, key: Hashable) -> dict[str, Lengths]:
        """Return the step parameters of a step."""
        context = getattr(source, "context", None)
        if context is not None:
            self._check_metadata(context, key)
        given = _read_task(self.task, source, self.count, key)
        if given.keys() != self.names:
            raise StepParameterError(
                f"reading the lengths of a step of {key}: expected "
                f"{', '.join(sorted(self.names))} in the metadata of {self.layers[0]}, found "
                f"{', '.join(sorted(given)) or 'none'}"
            )
        return given

    def _check_metadata(self, context: Mapping[str, Any], key: Hashable) -> None:
        own = context.get(self.layers[0])
        for layer in self.layers:
            found = context.get(layer)
            if found is None or found is not own:
                raise StepParameterError(
                    f"reading the lengths of a step of {key}: expected the metadata that "
                    f"{layer!r} shares with {self.layers[0]!r}, as at capture; {layer!r} has "
                    f"{'none' if found is None else 'another'}"
                )


def _find_groups(tasks: Sequence[Any], source: StepSource, key: Hashable) -> list[_Group]:
    """Return the groups of a graph's tasks, in the order of their first."""
    found: dict[tuple[object, ...], list[int]] = {}
    counts = Counter(task.provider for task in tasks)
    context = getattr(source, "context", None)
    read = [_read_task(task, source, counts[task.provider], key) for task in tasks]
    for position, (task, given) in enumerate(zip(tasks, read, strict=True)):
        shared = position if context is None else id(context[_layer_name(task)])
        objects = sorted((name, id(value)) for name, value in given.items())
        found.setdefault((shared, task.operation, *objects), []).append(position)
    return [
        _Group(
            task=tasks[positions[0]],
            count=counts[tasks[positions[0]].provider],
            layers=tuple(_layer_name(tasks[position]) for position in positions),
            positions=tuple(positions),
            names=frozenset(read[positions[0]]),
        )
        for positions in found.values()
    ]


def _step_arguments(task: Any, source: StepSource) -> Mapping[str, Any]:
    """Return the arguments of a task as a step has them.

    The engine captures paged attention with lengths that no sequence reaches, for the size of its
    workspace. It captures all steps of a draft alike; in a replay each step after the first has one
    token of each sequence, so as many sequences as the capture has tokens.
    """
    given: Mapping[str, Any] = task.kwargs
    kind, count = (
        _KINDS.get(_OPERATORS.get(_operator_name(task.operation), "")),
        len(given["query"]),
    )
    if isinstance(kind, PagedAttention):
        return {**given, "context_lens": given["context_lens"].new_ones(count)}
    if kind is None or hasattr(source, "context") or task.provider_index == 0:
        return given
    table = given["block_table"]
    return {
        **given,
        kind.family.query_lengths: list(range(1, count + 1)),
        kind.family.key_lengths: [1] * count,
        "block_table": table.new_empty(count, table.shape[1]),
    }


def _launch_name(task: Any, position: int) -> str:
    """Return a name of a launch: layers that share a cache have one name."""
    return f"{_layer_name(task)}, task {position}"


def _layer_name(task: Any) -> str:
    """Return the name of a task's layer in the engine's metadata.

    Under context parallelism the provider's `layer_name` also says which part of the keys it reads.
    """
    name: str = getattr(task.provider, "metadata_layer_name", task.provider.layer_name)
    return name


def _read_task(task: Any, source: StepSource, count: int, key: Hashable) -> dict[str, Lengths]:
    """Return the arguments that a step changes of a task, without those that are None."""
    found, index = source.get(task.provider), task.provider_index
    if hasattr(source, "context"):
        # Layers that share a cache have equal providers, and all of them the same lengths.
        count, index = 1, 0
    if len(found) != count:
        raise StepParameterError(
            f"reading the lengths of a step of {key}: expected those of {count} launches of "
            f"{_layer_name(task)!r}, as at capture, found {len(found)}"
        )
    return {name: value for name, value in found[index].items() if value is not None}


def _operator_name(operation: Any) -> str:
    """Return the name of an operator of torch, and of its overload if it has one."""
    # An overload says its name; what stands for all overloads is printed as namespace.name.
    name: str = operation.name() if hasattr(operation, "name") else str(operation)
    return name if "::" in name else name.replace(".", "::", 1)
