"""The cost of waits in replayed graphs, read from a trace with virtual times."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REPLAY = "replay"
_WAIT = "MEM_WAIT_VALUE"


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A replay at one of its waits for an external event; times are virtual, in microseconds.

    Attributes:
        replay: Number of the replay among those of the trace, from 1, by their begin.
        position: Number of the wait within the replay, from 0: that of the layer, where each layer
            waits for its update once.
        event: Address of the event's word, as text.
        arrived: When the stream came to the wait.
        written: When the value was written that ended the wait; 0 where no stream wrote it.
    """

    replay: int
    position: int
    event: str
    arrived: float
    written: float

    @property
    def microseconds(self) -> float:
        """How long the replay waited; 0 if the update was hidden."""
        return max(self.written - self.arrived, 0.0)


def read_stalls(trace: str | Path) -> tuple[Stall, ...]:
    """Return the waits of all replays of a trace, by replay and position.

    Waits of the stream that replays are found, not those of a graph's side branches.

    Args:
        trace: A file of ``CANN_SIM_TRACE``, complete, of a process with ``CANN_SIM_CLOCK``.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no trace, or one without virtual times.
    """
    try:
        events = json.loads(Path(trace).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"reading the stalls of {trace}: expected a trace in JSON, found {error}. A trace is "
            "complete when the process that writes it has ended"
        ) from error
    spans: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append(event)
    replays = sorted(
        (event["ts"], track, event["ts"] + event["dur"])
        for track, on_track in spans.items()
        for event in on_track
        if event["cat"] == _REPLAY and not event["name"].startswith("graph ")
    )
    return tuple(
        stall
        for number, (begin, track, end) in enumerate(replays, start=1)
        for stall in _stalls_of(number, spans[track], begin, end, trace)
    )


def _stalls_of(
    replay: int,
    spans: Sequence[Mapping[str, Any]],
    begin: float,
    end: float,
    trace: str | Path,
) -> Iterator[Stall]:
    inside = (span for span in spans if span["name"] == _WAIT and begin <= span["ts"] < end)
    for position, span in enumerate(sorted(inside, key=lambda each: float(each["ts"]))):
        details = span["args"]
        if "stall" not in details:
            raise ValueError(
                f"reading the stalls of {trace}: expected virtual times, found a trace without "
                "them. Set CANN_SIM_CLOCK beside CANN_SIM_TRACE"
            )
        yield Stall(
            replay=replay,
            position=position,
            event=details["event"],
            arrived=details["arrived"],
            written=details["happened"],
        )
