"""Adds layer names to the events of a device trace that update attention or wait for an update."""

from __future__ import annotations

import bisect
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ATTENTION = "attention"
RESET = "reset"
TELL = "tell"
UPDATE = "update"
WAIT = "wait"

_NAMES = MappingProxyType(
    {
        ATTENTION: "attention of {layer}",
        RESET: "reset the event of {layer}",
        TELL: "tell of the update of {layer}",
        UPDATE: "update {layer}",
        WAIT: "wait for the update of {layer}",
    }
)


def track_of(event: Mapping[str, Any]) -> tuple[int, int]:
    """Return the track of an event of Chrome's trace event format."""
    return event["pid"], event["tid"]


def is_replay(event: Mapping[str, Any]) -> bool:
    """Return whether an event is a replay on its stream, and not a branch of its graph."""
    return event.get("cat") == "replay" and not event["name"].startswith("graph ")


def with_layers(
    events: Sequence[Mapping[str, Any]], layers: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the events with layer names added to those of updates.

    On its track, the record of an external event follows the update it signals. In a replay, the
    wait, the reset of the event, and attention follow each other.

    Args:
        events: events from cann-sim. Tasks that write an external event's word, or wait for it,
            have its address as ``args["event"]``, and an arrow goes from a write to the wait that
            it ended.
        layers: maps such an address to the layer.

    Returns:
        The events as given. Those with a layer have ``layer``, ``role`` (a constant of this module)
        and, for a wait, ``in_time`` in their ``args``: whether it did not have to wait.
    """
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    records = {(*track_of(event), event["ts"]) for event in starts.values()}
    ended: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    spans: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=lambda each: each.get("ts", 0.0)):
        if event["ph"] == "f":
            ended[track_of(event)].append((event["ts"], starts[event["id"]]["ts"]))
        elif event["ph"] == "X":
            spans[track_of(event)].append(event)
    told = [event for event in events if event["ph"] != "X"]
    for track, on_track in spans.items():
        roles: list[tuple[str, str]] = []
        for event in on_track:
            layer = layers.get(event.get("args", {}).get("event", ""), "")
            role = ""
            if layer:
                role = TELL if (*track, event["ts"]) in records else RESET
                role = WAIT if event["cat"] == "wait" else role
                if role == TELL and roles:
                    roles[-1] = (UPDATE, layer)
            elif roles and roles[-1][0] == RESET:
                role, layer = ATTENTION, roles[-1][1]
            roles.append((role, layer))
        for event, (role, layer) in zip(on_track, roles, strict=True):
            told.append(_told(event, role, layer, ended[track]) if role else event)
    return told


def _told(
    event: Mapping[str, Any], role: str, layer: str, ended: Sequence[tuple[float, float]]
) -> Mapping[str, Any]:
    arguments = {**event.get("args", {}), "layer": layer, "role": role, "task": event["name"]}
    if role == WAIT:
        number = bisect.bisect_left(ended, (event["ts"], 0.0))
        arguments["in_time"] = number < len(ended) and ended[number][1] < event["ts"]
    return {**event, "name": _NAMES[role].format(layer=layer), "args": arguments}
