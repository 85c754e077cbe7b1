"""What an observer of captures and replays is told."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, TypeAlias

from npu_graph_runtime.planning.run_mode_choice import RunModeChoice

if TYPE_CHECKING:
    from npu_graph_runtime.device import MemoryFigures
    from npu_graph_runtime.graph_key import GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphCaptured:
    """A graph was captured.

    Attributes:
        name: of the graphed callable.
        key: of the graph.
        seconds: host time of the capture, warm-up runs excluded.
        warmup_seconds: host time of the warm-up runs.
    """

    name: str
    key: GraphKey
    seconds: float
    warmup_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphReplayed:
    """A graph was handed to the device for replay.

    Attributes:
        name: of the graphed callable.
        key: of the graph.
        began: when the call began, by ``time.perf_counter``.
        seconds: host time of the replay call; the device may still be working.
    """

    name: str
    key: GraphKey
    began: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SegmentReplayed:
    """A segment of a graph was handed to the device, or a function between two of them was run.

    Told in front of the `GraphReplayed` of the whole.

    Attributes:
        name: of the graphed callable.
        key: of the graph.
        segment: what messages call the segment: its number and place, or the eager call.
        runs_eagerly: whether it is a function that runs eagerly.
        began: when it began, by ``time.perf_counter``.
        seconds: host time of it.
    """

    name: str
    key: GraphKey
    segment: str
    runs_eagerly: bool
    began: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphMissed:
    """A call found no graph under its key and no capture session was open.

    Attributes:
        name: of the graphed callable.
        key: that was looked up.
    """

    name: str
    key: GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphReleased:
    """A graph was torn down.

    Attributes:
        name: of the graphed callable.
        key: of the graph.
    """

    name: str
    key: GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureSessionOpened:
    """A capture session began.

    Attributes:
        memory: figures before the first capture.
    """

    memory: MemoryFigures


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureSessionClosed:
    """A capture session ended.

    Attributes:
        num_graphs: graphs captured in it.
        seconds: host time from opening to closing.
        memory: figures after the last capture.
    """

    num_graphs: int
    seconds: float
    memory: MemoryFigures


RuntimeEvent: TypeAlias = (
    GraphCaptured
    | GraphReplayed
    | SegmentReplayed
    | GraphMissed
    | GraphReleased
    | CaptureSessionOpened
    | CaptureSessionClosed
    | RunModeChoice
)
"""Any event."""


class RuntimeObserver(Protocol):
    """Receives the events of the callables and sessions it was handed to.

    Without one no time is taken and no event is made. It is called on the thread of the call it
    reports; what it raises reaches the caller.
    """

    def observe(self, event: RuntimeEvent, /) -> None:
        """Take note of one event; called inside the step, so be quick."""
