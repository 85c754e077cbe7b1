"""The attention tasks of a graph that vllm-ascend 0.30 captured, updated by an update lane.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attn_update import CapturedLaunch, Recorder, StepParameterError, UpdatableGraph
from attn_update.kinds import FIA_V1, FusedInferAttention, PagedAttention

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from attn_update import DispatchedGraph, Lengths, TaskDevice, UpdateLane

_FUSED = FusedInferAttention(family=FIA_V1, rebind_block_table=True)
_PAGED = PagedAttention(rebind_block_table=True)
_OPERATORS = MappingProxyType({_FUSED.operator: "fused", _PAGED.operator: "paged"})


def make_recorder(device: TaskDevice) -> Recorder:
    """Return a recorder for the graphs of one model.

    Args:
        device: Of the model.
    """
    return Recorder(device, kinds={"fused": _FUSED, "paged": _PAGED})


class TaskUpdates:
    """Replays one graph and updates its tasks.

    Tasks that get the same objects in a step form a parameter group; the provider of its first task
    reads for all of them.

    Args:
        graph: Captured by the engine.
        tasks: Of the graph, as the engine holds them: ``operation``, ``kwargs``, ``provider``,
            ``handle`` and ``event``. From now on nobody else may update them.
        recorder: From `make_recorder`; takes the records under `key`.
        lane: Of the device.
        key: The engine's batch descriptor.
        metadata: What the engine gave each layer for the capture, or in any step of this graph, by
            name.

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
        metadata: Mapping[str, Any],
    ) -> None:
        self._key = key
        self._groups = _find_groups(tasks, metadata)
        named = {position: group.name for group in self._groups for position in group.positions}
        launches = [
            CapturedLaunch(
                layer_name=_launch_name(task, position),
                operator=_operator_name(task.operation),
                handle=task.handle,
                event=task.event,
                arguments=task.kwargs,
                group=named[position],
            )
            for position, task in enumerate(tasks)
        ]
        self._updatable = UpdatableGraph(
            recorder, key, graph, lane, operators=_OPERATORS, launches=launches
        )

    def replay(self, metadata: Mapping[str, Any] | None) -> None:
        """Replay the graph and issue the updates of its tasks; returns as soon as all is queued.

        Args:
            metadata: What the engine gives each layer in this step, by name.

        Raises:
            StepParameterError: There is none, the layers share theirs otherwise than at capture, or
                the lengths do not fit; nothing was launched.
            UpdateError: See `attn_update.UpdateLane.run`.
        """
        if metadata is None:
            raise StepParameterError(
                f"replaying the graph of {self._key}: expected the metadata of its layers, found "
                f"none; run a step without attention eagerly"
            )
        self._updatable.update([group.read(metadata, self._key) for group in self._groups])


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Tasks that get the same objects in a step.

    Attributes:
        provider: Of the first task: reads the arguments that a step changes.
        layers: The names under which their metadata stands.
        positions: Of the tasks in the graph.
        names: Of the arguments that were read at capture.
    """

    provider: Any
    layers: tuple[str, ...]
    positions: tuple[int, ...]
    names: frozenset[str]

    @property
    def name(self) -> str:
        """Names the parameter group."""
        return f"{self.layers[0]}, task {self.positions[0]}"

    def read(self, metadata: Mapping[str, Any], key: Hashable) -> dict[str, Lengths]:
        """Return the step parameters in the metadata of a step."""
        own = metadata.get(self.layers[0])
        for layer in self.layers:
            found = metadata.get(layer)
            if found is None or found is not own:
                raise StepParameterError(
                    f"reading the lengths of a step of {key}: expected the metadata that "
                    f"{layer!r} shares with {self.layers[0]!r}, as at capture; {layer!r} has "
                    f"{'none' if found is None else 'another'}"
                )
        given = _given(self.provider, metadata)
        if given.keys() != self.names:
            raise StepParameterError(
                f"reading the lengths of a step of {key}: expected "
                f"{', '.join(sorted(self.names))} in the metadata of {self.layers[0]}, found "
                f"{', '.join(sorted(given)) or 'none'}"
            )
        return given


def _find_groups(tasks: Sequence[Any], metadata: Mapping[str, Any]) -> list[_Group]:
    """Return the groups of a graph's tasks, in the order of their first."""
    found: dict[tuple[object, ...], list[int]] = {}
    read = [_given(task.provider, metadata) for task in tasks]
    for position, (task, given) in enumerate(zip(tasks, read, strict=True)):
        same = (id(metadata[task.provider.layer_name]), task.operation)
        objects = sorted((name, id(value)) for name, value in given.items())
        found.setdefault((*same, *objects), []).append(position)
    return [
        _Group(
            provider=tasks[positions[0]].provider,
            layers=tuple(tasks[position].provider.layer_name for position in positions),
            positions=tuple(positions),
            names=frozenset(read[positions[0]]),
        )
        for positions in found.values()
    ]


def _launch_name(task: Any, position: int) -> str:
    """Return a name of a launch: layers that share a cache have one name."""
    return f"{task.provider.layer_name}, task {position}"


def _given(provider: Any, metadata: Mapping[str, Any]) -> dict[str, Lengths]:
    """Return the arguments that a provider reads from the metadata, without those that are None."""
    resolved = provider.resolve(metadata)
    return {name: value for name, value in resolved.items() if value is not None}


def _operator_name(operation: Any) -> str:
    """Return the name of an operator of torch, and of its overload if it has one."""
    # An overload says its name; what stands for all overloads is printed as namespace.name.
    name: str = operation.name() if hasattr(operation, "name") else str(operation)
    return name if "::" in name else name.replace(".", "::", 1)
