"""Records of captured attention launches, by graph key and layer name."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from attn_update.task_device import GuardingDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    import torch

    from attn_update.kinds.kind import AttentionKind
    from attn_update.task_device import ExternalEvent, TaskDevice


class TensorWatch:
    """Watches the memory of tensors and lists those whose memory was freed.

    A record refers weakly to its tensors: a launch would read other memory once an owner drops a
    cache. Torch keeps one Python object for each storage as long as the storage is used, so a weak
    reference to that object calls back when the memory is freed.
    """

    def __init__(self) -> None:
        self.dead: list[str] = []
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, tensor: torch.Tensor, name: str) -> None:
        """Watch the memory of a tensor; tensors that share memory are watched once.

        The tensor is not kept alive; `dead` gets the name when its memory is freed.
        """
        storage = tensor.untyped_storage()
        known = self._references.get(id(storage))
        if known is not None and known() is storage:
            return
        dead = self.dead

        def note(_: object) -> None:
            dead.append(name)

        self._references[id(storage)] = weakref.ref(storage, note)

    def clear(self) -> None:
        """Stop watching."""
        self._references.clear()


@dataclass(frozen=True, kw_only=True)
class Record:
    """One task group: an attention launch of a captured graph that can be updated.

    Attributes:
        layer_name: Name of the launch, unique for each key.
        key: The graph key that was recorded.
        group: The parameter group with the step arguments of this layer.
        kind: The kind, which updates the launch.
        handle: The task group, which only the device understands.
        event: The captured graph waits for it before the launch; every step must record it.
        arguments: All keyword arguments of the launch. Tensors are referenced weakly, except the
            workspace, which belongs to the recorder.
        geometry: The shapes that a step is checked against.
    """

    layer_name: str
    key: Hashable
    group: str
    kind: AttentionKind
    handle: object
    event: ExternalEvent
    arguments: Mapping[str, object]
    geometry: Hashable


class ReplayOwner(ABC):
    """Tracks the replays of one graph: an update lane has one for each key that it updates."""

    @abstractmethod
    def refuse_other(self, key: Hashable) -> str | None:
        """Return why the graph of another key must not be replayed in the present step, or None."""

    @abstractmethod
    def note_replay(self) -> str | None:
        """Record a replay of the owned graph, or return why it is rejected."""


class LayerProducers(Protocol):
    """The producers of the graph that is captured now."""

    def before_layer(
        self, layer_name: str, arguments: Mapping[str, object], metadata: frozenset[str]
    ) -> None:
        """Let the current stream wait for those producers whose buffers a layer reads.

        A producer has to make the arguments named in ``metadata``.

        Raises:
            RecordingError: No producer makes one of these.
        """

    def replay_refusal(self) -> str | None:
        """Return why the graph may not be replayed now, or None; note the replay."""

    def release(self) -> None:
        """Forget the graph, because the recorder does."""


class KeyRecords:
    """The records of one graph key.

    Attributes:
        key: The graph key.
        records: The records by layer name, in the order of capture.
        fixed: Layers captured with a kind that needs no update.
        watch: Watches the memory that the launches read and the graph does not own.
        released: Whether the recorder has released the key; its plans are then invalid.
        graph: The graph captured under the key, if the caller passed it: an object with a method
            `replay`, referenced weakly. Calling this returns it, or None once it is gone.
        is_guarded: Whether the device asks before each replay of the graph.
        owner: Tracks the replays of the graph, after the first step.
        producers: Make metadata for its layers, if any.
    """

    def __init__(self, key: Hashable, graph: object = None) -> None:
        self.key = key
        self.graph: Callable[[], Any] = _weakly(graph)
        self.records: dict[str, Record] = {}
        self.fixed: set[str] = set()
        self.watch = TensorWatch()
        self.released = False
        self.is_guarded = False
        self.owner: ReplayOwner | None = None
        self.producers: LayerProducers | None = None

    def guard(self, device: TaskDevice) -> None:
        """Let the device ask before each replay of the graph that is captured now, if it can."""
        if isinstance(device, GuardingDevice):
            self.is_guarded = device.guard_replays(self.replay_refusal)

    def replay_refusal(self, expected: object) -> str | None:
        """Return why the graph of this key must not be replayed now, or None; record the replay.

        ``expected`` is the owner of the graph whose step this thread runs, if any.
        """
        refusal = None if self.producers is None else self.producers.replay_refusal()
        if refusal is not None:
            return refusal
        owner = self.owner
        if expected is not owner and isinstance(expected, ReplayOwner):
            refusal = expected.refuse_other(self.key)
            if refusal is not None:
                return refusal
        return None if owner is None else owner.note_replay()

    def release(self) -> None:
        """Release the records; plans created from them become invalid."""
        self.released = True
        self.records.clear()
        self.fixed.clear()
        self.watch.clear()
        self.owner = None
        if self.producers is not None:
            self.producers.release()


def _weakly(value: object) -> Callable[[], Any]:
    """Return a weak reference to a value, or a strong one if it has no weak references."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
