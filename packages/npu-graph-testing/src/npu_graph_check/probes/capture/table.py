"""The probes of streams, events, captures, replays, external events, task groups and updates."""

from __future__ import annotations

from npu_graph_check.probe import Probe

_MODULES = "npu_graph_check.probes.capture"

CAPTURE = (
    Probe(
        id="capture.default-stream",
        title="Capturing the default stream is 107000, capturing a captured stream 107027",
        run=f"{_MODULES}.illegal_calls:default_stream",
        rows=("capture-1",),
    ),
    Probe(
        id="capture.synchronising",
        title="Waiting for, querying or destroying a captured stream is 107027; it goes on",
        run=f"{_MODULES}.illegal_calls:synchronising",
        rows=("capture-2",),
    ),
    Probe(
        id="capture.event-questions",
        title="Host waits and queries of an event recorded in a capture are 107028",
        run=f"{_MODULES}.events_in_captures:event_questions",
        rows=("capture-3",),
    ),
    Probe(
        id="capture.blocking-copies",
        title="Blocking copies are 107030 by the mode of the capture, and the thread",
        run=f"{_MODULES}.events_in_captures:blocking_copies",
        rows=("capture-4",),
    ),
    Probe(
        id="capture.pageable-copy",
        title="An asynchronous copy of pageable memory is 107000 in a capture, 107041 beside it",
        run=f"{_MODULES}.events_in_captures:pageable_copy",
        rows=("capture-5",),
    ),
    Probe(
        id="capture.default-stream-joins",
        title="The default stream cannot join a capture: 107031, and the capture is invalid",
        run=f"{_MODULES}.events_in_captures:default_stream_joins",
        rows=("capture-6",),
    ),
    Probe(
        id="capture.joins-by-event",
        title="A stream joins a capture by waiting for an event recorded in it",
        run=f"{_MODULES}.events_in_captures:joins_by_event",
        rows=("capture-6",),
    ),
    Probe(
        id="capture.other-capture",
        title="An event of another capture is 107032, and both captures become invalid",
        run=f"{_MODULES}.events_in_captures:other_capture",
        rows=("capture-7",),
    ),
    Probe(
        id="capture.outside-event",
        title="Waiting in a capture for an event recorded outside is 107024",
        run=f"{_MODULES}.events_in_captures:outside_event",
        rows=("capture-8",),
    ),
    Probe(
        id="capture.old-event",
        title="An event of the older kind is 207000 in a capture",
        run=f"{_MODULES}.events_in_captures:old_event",
        rows=("capture-9",),
    ),
    Probe(
        id="capture.unjoined",
        title="A capture whose side stream does not come back ends with 107025",
        run=f"{_MODULES}.events_in_captures:unjoined",
        rows=("capture-10",),
    ),
    Probe(
        id="capture.wrong-end",
        title="A capture that ends on another stream is 107036, on another thread 107038",
        run=f"{_MODULES}.events_in_captures:wrong_end",
        rows=("capture-11",),
    ),
    Probe(
        id="capture.over-at-its-end",
        title="The capture is over when its end returns, with or without an error",
        run=f"{_MODULES}.events_in_captures:over_at_its_end",
        rows=("capture-13",),
    ),
    Probe(
        id="capture.streams-taken",
        title="A captured graph takes a stream, and another for each 2,016 of its tasks",
        run=f"{_MODULES}.events_in_captures:streams_taken",
        rows=("capture-14", "stream-3"),
    ),
    Probe(
        id="capture.replay-in-order",
        title="A replay is work of its stream like any other",
        run=f"{_MODULES}.replays:in_order",
        rows=("replay-1",),
    ),
    Probe(
        id="capture.replay-on-two-streams",
        title="Two replays of one graph on two streams run one after the other",
        run=f"{_MODULES}.replays:two_streams",
        rows=("replay-2",),
    ),
    Probe(
        id="capture.replay-refused",
        title="Replaying a graph that is captured is 107026, an unknown one 107000",
        run=f"{_MODULES}.replays:refused",
        rows=("replay-5",),
    ),
    Probe(
        id="capture.destroyed-while-running",
        title="A graph that is destroyed while it runs ends its replay",
        run=f"{_MODULES}.replays:destroyed_while_running",
        rows=("replay-4",),
    ),
    Probe(
        id="capture.replayed-copy",
        title="A copy in a graph reads host memory at every replay",
        run=f"{_MODULES}.replays:host_memory",
        rows=("replay-6",),
    ),
    Probe(
        id="capture.streams-run-beside",
        title="Streams run in order, and beside each other",
        run=f"{_MODULES}.waits:streams_beside_each_other",
        rows=("stream-1",),
    ),
    Probe(
        id="capture.unrecorded-event",
        title="A wait refers to the latest record before it; before the first it does nothing",
        run=f"{_MODULES}.waits:unrecorded_event",
        rows=("stream-10",),
    ),
    Probe(
        id="capture.flag-event",
        title="An event of the older kind is a flag: a reset clears it, a wait does not",
        run=f"{_MODULES}.waits:flag_event",
        rows=("stream-11",),
    ),
    Probe(
        id="capture.event-times",
        title="Elapsed times are 107006 before the event has happened, 107007 in the wrong order",
        run=f"{_MODULES}.waits:event_times",
        rows=("stream-14",),
    ),
    Probe(
        id="capture.limited-synchronisation",
        title="A synchronisation whose limit is reached is 507046",
        run=f"{_MODULES}.waits:limited_synchronisation",
        rows=("stream-15",),
    ),
    Probe(
        id="capture.external-word",
        title="An external event is a word: the graph waits until it is 1 and writes 0",
        run=f"{_MODULES}.waits:word_of_an_external_event",
        rows=("external-1", "updater-5"),
    ),
    Probe(
        id="capture.two-records-are-one",
        title="Two records before one wait are one",
        run=f"{_MODULES}.waits:two_records_are_one",
        rows=("external-2",),
    ),
    Probe(
        id="capture.wait-sees-a-copy",
        title="A wait for a value sees what a copy writes",
        run=f"{_MODULES}.waits:wait_sees_a_copy",
        rows=("external-4",),
    ),
    Probe(
        id="capture.update-takes-effect",
        title="An update takes effect in the order of its stream, for later replays",
        run=f"{_MODULES}.updates:takes_effect",
        rows=("update-5",),
    ),
    Probe(
        id="capture.update-behind-replay",
        title="An update that comes behind the replay, before the word is written, is in time",
        run=f"{_MODULES}.updates:behind_a_replay",
        rows=("update-5", "update-6"),
    ),
    Probe(
        id="capture.update-only-kernels",
        title="Groups and updates take kernels and event records only: 507009; replays 107027",
        run=f"{_MODULES}.updates:only_kernels",
        rows=("update-1", "update-2"),
    ),
    Probe(
        id="capture.unpaired-groups",
        title="Task groups that are not opened and closed in pairs are 107033, outside 107029",
        run=f"{_MODULES}.updates:unpaired_groups",
        rows=("update-3",),
    ),
    Probe(
        id="capture.interrupted-group",
        title="A task on another captured stream interrupts an open group: 107034",
        run=f"{_MODULES}.updates:interrupted_group",
        rows=("update-4",),
    ),
    Probe(
        id="capture.unpaired-updates",
        title="Updates that are not begun and ended in pairs are 107033, in a capture 107027",
        run=f"{_MODULES}.updates:unpaired_updates",
        rows=("update-11",),
    ),
    Probe(
        id="capture.other-kernels",
        title="An update with another kernel, one more or one less is 507000",
        run=f"{_MODULES}.updates:other_kernels",
        rows=("update-10",),
    ),
)
