"""The probes of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

from npu_graph_check.probe import Probe

_ILLEGAL = "npu_graph_check.probes.capture.illegal_calls"

CAPTURE = (
    Probe(
        id="capture.default-stream",
        title="Capturing the default stream is 107000, capturing a captured stream 107027",
        run=f"{_ILLEGAL}:default_stream",
        rows=("capture-1",),
    ),
    Probe(
        id="capture.synchronising",
        title="Synchronising, querying or destroying a captured stream is 107027, and the capture "
        "goes on",
        run=f"{_ILLEGAL}:synchronising",
        rows=("capture-2",),
    ),
)
