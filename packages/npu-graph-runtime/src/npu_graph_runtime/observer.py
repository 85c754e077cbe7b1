"""The events of captures and replays that an observer receives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, TypeAlias

from npu_graph_runtime.planning.run_mode_chooser import RunModeChoice

if TYPE_CHECKING:
    from npu_graph_runtime.device import MemoryFigures
    from npu_graph_runtime.graph_key import GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphCaptured:
    """A graph was captured.

    Attributes:
        name: name of the graphed callable.
        key: key of the graph.
        seconds: host time of the capture, without warm-up runs.
        warmup_seconds: host time of the warm-up runs.
    """

    name: str
    key: GraphKey
    seconds: float
    warmup_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphReplayed:
    """The replay of a graph was launched.

    Attributes:
        name: name of the graphed callable.
        key: key of the graph.
        began: start of the call, by ``time.perf_counter``.
        seconds: host time of the replay call; the device may still be working.
    """

    name: str
    key: GraphKey
    began: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SegmentReplayed:
    """A segment of a graph was launched, or a function between two segments was run.

    Sent before the `GraphReplayed` of the whole graph.

    Attributes:
        name: name of the graphed callable.
        key: key of the graph.
        segment: the segment's name in messages: its number and place, or the eager call.
        runs_eagerly: whether it is a function that runs eagerly.
        began: its start, by ``time.perf_counter``.
        seconds: its host time.
    """

    name: str
    key: GraphKey
    segment: str
    runs_eagerly: bool
    began: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphMissed:
    """A call found no graph for its key and no capture session was open.

    Attributes:
        name: name of the graphed callable.
        key: the key.
    """

    name: str
    key: GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphReleased:
    """A graph was released.

    Attributes:
        name: name of the graphed callable.
        key: key of the graph.
    """

    name: str
    key: GraphKey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureSessionOpened:
    """A capture session began.

    Attributes:
        memory: memory figures before the first capture.
    """

    memory: MemoryFigures


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureSessionClosed:
    """A capture session ended.

    Attributes:
        num_graphs: number of graphs captured in it.
        seconds: host time from opening to closing.
        memory: memory figures after the last capture.
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
    """Receives the events of the callables and sessions that it is passed to.

    Without an observer, no time is measured and no event is created. It is called on the thread of
    the call it reports. Its exceptions reach the caller.
    """

    def observe(self, event: RuntimeEvent, /) -> None:
        """Handle one event; called inside the step, so be quick."""
