"""Records: what is kept of captured attention launches, by graph key and layer name."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.recording.tensor_watch import TensorWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attn_update.kinds.kind import AttentionKind
    from attn_update.task_device import ExternalEvent, Stream


@dataclass(frozen=True, kw_only=True)
class Record:
    """One task group: an attention launch of a captured graph that can be updated.

    Attributes:
        layer_name: Names the launch, once for each key.
        key: The graph key that was recorded.
        group: The parameter group that gives the step arguments of this layer.
        kind_name: The name of the kind in the recorder's table.
        kind: How the launch is updated.
        handle: The task group, which only the device understands.
        event: The captured graph waits for it before the launch; every step must record it.
        arguments: All keyword arguments of the launch. Tensors are held weakly, but for the
            workspace, which belongs to the recorder.
        geometry: What the checks of a step depend on.
    """

    layer_name: str
    key: Hashable
    group: str
    kind_name: str
    kind: AttentionKind
    handle: object
    event: ExternalEvent
    arguments: Mapping[str, object]
    geometry: Hashable


class KeyRecords:
    """The records of one graph key, and how far its replays are.

    Attributes:
        key: The graph key.
        records: By layer name, in the order of capture.
        fixed: Layers captured with a kind that needs no update, and the names of the kinds.
        watch: Watches the memory that the launches read and the graph does not own.
        released: Whether the recorder let go of the key; its plans are then void.
        replayed: The mark behind the latest replay, of the lane's issuer; updates wait for it on
            the device.
        replayed_on: The stream of the latest replay.
        unsettled: Whether external events may be left set, because a step failed.
        lane: The update lane that updates this key, once there was a step.
        graph: What is captured under the key, if the caller said so: an object with a method
            `replay`, held weakly; a call gives it, or None once it is gone.
        is_guarded: Whether the device asks `replay_refusal` before each replay of the graph.
        is_open: Whether a step of the key is under way, from its check to its updates.
        is_run: Whether that step is run by one call, in which its graph is replayed once.
        refusal: Why a replay was refused in a step of the key; None where none was.
        awaits_replay: Whether the graph of the step that is under way was not replayed yet; False
            where nobody can know.
        latest: The plan and the values of the latest step, if that went well; None for values
            that only the bound launches know.
    """

    def __init__(self, key: Hashable, graph: object = None) -> None:
        self.key = key
        self.graph: Callable[[], Any] = _held_weakly(graph)
        self.records: dict[str, Record] = {}
        self.fixed: dict[str, str] = {}
        self.watch = TensorWatch()
        self.released = False
        self.replayed: object = None
        self.replayed_on: Stream | None = None
        self.unsettled = False
        self.lane: object = None
        self.is_guarded = False
        self.is_open = False
        self.is_run = False
        self.refusal: str | None = None
        self.awaits_replay = False
        self.latest: tuple[object, tuple[Mapping[str, object], ...] | None] | None = None

    def replay_refusal(self, expected: object) -> str | None:
        """Return why the graph of this key may not be replayed now, or None; note the replay.

        Args:
            expected: The records of the step that this thread has under way, if there is one.
        """
        if expected is not self and isinstance(expected, KeyRecords) and expected.is_open:
            expected.refusal = (
                f"running a step of key {expected.key!r}: the replay is that of another graph, of "
                f"key {self.key!r}, which would wait for ever for events that this step does not "
                f"set; give the plan and the parameters of key {self.key!r}, or replay the graph "
                f"of key {expected.key!r}. A step that was begun ends with finish or abandon"
            )
            return expected.refusal
        if self.is_run and self.is_guarded and not self.awaits_replay:
            self.refusal = (
                f"running a step of key {self.key!r}: its graph is replayed a second time, and "
                f"would wait for ever for updates that the step makes once; run a step for each "
                f"replay"
            )
            return self.refusal
        self.awaits_replay = False
        return None

    def release(self) -> None:
        """Let go of the records; plans made from them are void."""
        self.released = True
        self.records.clear()
        self.fixed.clear()
        self.watch.clear()
        self.replayed = self.replayed_on = None
        self.latest = None


def _held_weakly(value: object) -> Callable[[], Any]:
    """Return what gives a value while it lives; one that has no weak references is kept."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
