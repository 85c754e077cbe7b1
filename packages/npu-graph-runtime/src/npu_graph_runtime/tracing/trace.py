"""A trace in the format of Chrome's trace events, which https://ui.perfetto.dev opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MICROSECONDS = 1e6


class Trace:
    """Spans, moments, counters and arrows, on tracks that are called by name.

    Times are seconds of ``time.perf_counter``, which on Linux is the monotonic clock, so that
    traces of several processes of one machine fit beside each other: :meth:`join`.

    Args:
        process: what the group of the tracks is called.
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
        """Add what took from one moment to another.

        Args:
            track: on which it stands; spans of one track nest or follow each other.
            name: what is shown.
            begin: seconds.
            end: seconds.
            arguments: what is shown of it when it is clicked on; plain values.
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
        """Add what has no length."""
        self._add("i", name, track, at, s="t", args=arguments)

    def add_counter(self, name: str, values: Mapping[str, float], *, at: float) -> None:
        """Add the values of a counter from a moment on, drawn as a curve each."""
        self._add("C", name, name, at, args=dict(values))

    def add_arrow(self, name: str, start: tuple[str, float], end: tuple[str, float]) -> None:
        """Add an arrow between the spans that lie at two moments, each on its track."""
        self._num_arrows += 1
        for phase, (track, at), rest in (("s", start, {}), ("f", end, {"bp": "e"})):
            self._add(phase, name, track, at, cat=name, id=self._num_arrows, **rest)

    def join(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add the events of another trace of the same clock, each of its processes as a new one.

        Args:
            events: as such a file holds them, under ``traceEvents`` or as a list.
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
        """Return the trace as plain data that JSON can hold."""
        return {"traceEvents": list(self._events), "displayTimeUnit": "ms"}

    def write(self, path: str | Path) -> None:
        """Write the trace into a file.

        Raises:
            OSError: it cannot be written.
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
