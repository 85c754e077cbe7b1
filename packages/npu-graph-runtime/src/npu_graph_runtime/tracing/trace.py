"""A trace in the format of Chrome's trace events, which https://ui.perfetto.dev opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MICROSECONDS = 1e6


class Trace:
    """Spans, moments, counters and arrows on named tracks.

    Times are seconds of ``time.perf_counter``, which is the monotonic clock on Linux. You can
    therefore
    combine traces of several processes on one machine: :meth:`join`.

    Args:
        process: name of the group of tracks.
    """

    def __init__(self, process: str = "host") -> None:
        self._events: list[dict[str, Any]] = []
        self._tracks: dict[str, int] = {}
        self._num_processes = 1
        self._num_arrows = 0
        self._meta("process_name", 0, process)

    def add_span(
        self, track: str, name: str, *, begin: float, end: float, **arguments: object
    ) -> None:
        """Add a span from one time to another.

        Args:
            track: its track; spans of one track are nested or follow each other.
            name: its name.
            begin: start in seconds.
            end: end in seconds.
            arguments: details shown when it is selected; plain values.
        """
        self._add(
            "X",
            name,
            track,
            begin,
            dur=round((end - begin) * _MICROSECONDS, 3),
            args=arguments,
        )

    def add_moment(self, track: str, name: str, *, at: float, **arguments: object) -> None:
        """Add an event without duration."""
        self._add("i", name, track, at, s="t", args=arguments)

    def add_counter(self, name: str, values: Mapping[str, float], *, at: float) -> None:
        """Add the values of a counter from a time on, each drawn as a curve."""
        self._add("C", name, name, at, args=dict(values))

    def add_arrow(self, name: str, start: tuple[str, float], end: tuple[str, float]) -> None:
        """Add an arrow between the spans at two times, each on its track."""
        self._num_arrows += 1
        for phase, (track, at), rest in (("s", start, {}), ("f", end, {"bp": "e"})):
            self._add(phase, name, track, at, cat=name, id=self._num_arrows, **rest)

    def join(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add the events of another trace with the same clock, under new process numbers.

        Args:
            events: the content of such a file, or its list ``traceEvents``.
        """
        processes: dict[object, int] = {}
        arrows: dict[object, int] = {}
        for event in events:
            process = event.get("pid")
            if process not in processes:
                processes[process] = self._num_processes
                self._num_processes += 1
            taken = {**event, "pid": processes[process]}
            if "id" in event:
                if event["id"] not in arrows:
                    self._num_arrows += 1
                    arrows[event["id"]] = self._num_arrows
                taken["id"] = arrows[event["id"]]
            self._events.append(taken)

    def to_mapping(self) -> dict[str, Any]:
        """Return the trace as plain data for JSON."""
        return {"traceEvents": list(self._events), "displayTimeUnit": "ms"}

    def write(self, path: str | Path) -> None:
        """Write the trace to a file.

        Raises:
            OSError: The file cannot be written.
        """
        Path(path).write_text(json.dumps(self.to_mapping()) + "\n", encoding="utf-8")

    def _add(self, phase: str, name: str, track: str, at: float, **rest: object) -> None:
        number = self._tracks.get(track)
        if number is None:
            number = self._tracks[track] = len(self._tracks) + 1
            self._meta("thread_name", number, track)
            # Perfetto orders tracks by this, else by number in a way of its own.
            self._meta("thread_sort_index", number, number, "sort_index")
        event = {"name": name, "ph": phase, "ts": round(at * _MICROSECONDS, 3)}
        self._events.append({**event, "pid": 0, "tid": number, **rest})

    def _meta(self, name: str, track: int, value: object, key: str = "name") -> None:
        event = {"name": name, "ph": "M", "pid": 0, "tid": track, "args": {key: value}}
        self._events.append(event)
