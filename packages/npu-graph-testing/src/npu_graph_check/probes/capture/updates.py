"""Task groups, and updates of them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from npu_graph_check.cann.installed_versions import is_simulated
from npu_graph_check.cann.runtime import Cann, Handle
from npu_graph_check.cann.vector import Vector, Word

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_BEGIN, _END = "aclmdlRICaptureTaskGrpBegin", "aclmdlRICaptureTaskGrpEnd"
_UPDATE, _UPDATED = "aclmdlRICaptureTaskUpdateBegin", "aclmdlRICaptureTaskUpdateEnd"


class Updatable:
    """A graph that waits for a word, if it has one, and then adds 1 in a task group."""

    def __init__(self, cann: Cann, *, has_word: bool = False) -> None:
        self.cann, self.stream, self.lane = cann, cann.create_stream(), cann.create_stream()
        self.values, self.word, self.group = Vector(cann, [0.0] * 4), Word(cann), Handle()
        with cann.captured(self.stream) as self.graph:
            if has_word:
                self.word.take(self.stream)
            cann.ok(_BEGIN, self.stream)
            self.values.add(1.0, self.stream)
            cann.ok(_END, self.stream, ctypes.byref(self.group))

    def update(self, number: float, stream: Handle) -> None:
        """Let the group add another number, from where the stream comes to it."""
        self.cann.ok(_UPDATE, stream, self.group)
        self.values.add(number, stream)
        self.cann.ok(_UPDATED, stream)

    def replay(self) -> None:
        """Replay, and wait."""
        self.cann.run(self.graph, self.stream)


def takes_effect(look: Look) -> None:
    """Update between replays, in the order of the stream."""
    cann = Cann()
    graph = Updatable(cann)
    graph.replay()
    look.expect("a replay as captured", graph.values.read(), [1.0] * 4)
    graph.update(10.0, graph.stream)
    graph.replay()
    look.expect("one after the update", graph.values.read(), [11.0] * 4)
    graph.replay()
    look.expect("and the next", graph.values.read(), [21.0] * 4)


def behind_a_replay(look: Look) -> None:
    """Replay first and update afterwards, before the word that the graph waits for is written."""
    cann = Cann()
    graph = Updatable(cann, has_word=True)
    expected = 0.0
    for number in (5.0, 7.0, 9.0, 11.0):
        cann.replay(graph.graph, graph.stream)
        graph.update(number, graph.lane)
        graph.word.write(graph.lane, 1)
        look.doing("waiting for a replay whose update came behind it")
        cann.synchronize(graph.stream)
        expected += number
        look.expect("the sum so far", graph.values.read(), [expected] * 4)


def only_kernels(look: Look) -> None:
    """Put other tasks than kernels into a group and an update."""
    cann = Cann()
    graph, word, event = Updatable(cann), Word(cann), cann.create_event()
    given = (graph.values.address, 16, 0, 16)
    cann.begin_capture(graph.stream)
    cann.ok(_BEGIN, graph.stream)
    in_group = cann.call("aclrtMemsetAsync", *given, graph.stream)
    look.expect("a set of memory in a group", in_group, 507009)
    cann.end_status(graph.stream)
    cann.ok(_UPDATE, graph.lane, graph.group)
    look.expect(
        "a set of memory in an update", cann.call("aclrtMemsetAsync", *given, graph.lane), 507009
    )
    write = cann.call("aclrtValueWrite", word.address, 1, 0, graph.lane)
    look.expect("a write of a value in an update", write, 507009)
    look.expect("a record in an update", cann.call("aclrtRecordEvent", event, graph.lane), 0)
    look.expect(
        "a replay on that stream",
        cann.call("aclmdlRIExecuteAsync", graph.graph, graph.lane),
        107027,
    )


def unpaired_groups(look: Look) -> None:
    """Open a group twice, close one that is not open, leave one open, open one outside."""
    cann = Cann()
    stream, group = cann.create_stream(), Handle()
    look.expect("outside a capture", cann.call(_BEGIN, stream), 107029)
    with cann.capturing(stream):
        ended = cann.call(_END, stream, ctypes.byref(group))
        look.expect("closed without being opened", ended, 107033)
    with cann.capturing(stream):
        cann.ok(_BEGIN, stream)
        look.expect("opened twice", cann.call(_BEGIN, stream), 107033)
    cann.begin_capture(stream)
    cann.ok(_BEGIN, stream)
    look.expect("open at the end of the capture", cann.end_status(stream), 107033)


def interrupted_group(look: Look) -> None:
    """Put a task on another captured stream while a group is open."""
    cann = Cann()
    main, side = cann.create_stream(), cann.create_stream()
    values = Vector(cann, [1.0] * 4)
    cann.begin_capture(main)
    cann.wait_for(side, main)
    cann.ok(_BEGIN, main)
    look.expect("the launch on the side stream", values.add_status(1.0, side), 107034)
    look.expect("the state of the capture (2: invalid)", cann.capture_status(main), 2)


def unpaired_updates(look: Look) -> None:
    """Begin updates twice, on two streams, on a capturing one; end one without a begin."""
    cann = Cann()
    graph, other = Updatable(cann), cann.create_stream()
    look.expect("ended without begin", cann.call(_UPDATED, graph.lane), 107033)
    with cann.capturing(other):
        on_captured = cann.call(_UPDATE, other, graph.group)
        look.expect("begun on a capturing stream", on_captured, 107027)
    cann.ok(_UPDATE, graph.lane, graph.group)
    look.expect("begun twice on a stream", cann.call(_UPDATE, graph.lane, graph.group), 107033)
    look.expect("begun on two streams", cann.call(_UPDATE, other, graph.group), 107033)


def other_kernels(look: Look) -> None:
    """Update with another kernel, with one too many, and with none."""
    cann = Cann()
    graph = Updatable(cann)
    cann.ok(_UPDATE, graph.lane, graph.group)
    look.expect("another kernel", graph.values.multiply_status(2.0, graph.lane), 507000)
    graph = Updatable(cann)
    cann.ok(_UPDATE, graph.lane, graph.group)
    graph.values.add(2.0, graph.lane)
    look.expect("one kernel more", graph.values.add_status(2.0, graph.lane), 507000)
    graph = Updatable(cann)
    cann.ok(_UPDATE, graph.lane, graph.group)
    look.expect("a kernel less, at the end", cann.call(_UPDATED, graph.lane), 507000)


def frees_arguments(look: Look) -> None:
    """Update a kernel many times, and measure the device memory that is held afterwards."""
    cann = Cann()
    graph = Updatable(cann)
    graph.update(1.0, graph.lane)
    cann.synchronize(graph.lane)
    before, updates = cann.free_memory(), 500
    for _ in range(updates):
        graph.update(2.0, graph.lane)
    cann.synchronize(graph.lane)
    look.expect("bytes that an update holds", (before - cann.free_memory()) // updates, 0)
    graph.replay()
    look.expect("the last update is in effect", graph.values.read(), [2.0] * 4)


def nothing_orders(look: Look) -> None:
    """Update a kernel that has run, in a replay that has not ended and nothing orders before it."""
    cann = Cann()
    stream, lane, gate = cann.create_stream(), cann.create_stream(), cann.create_stream()
    values, word, group = Vector(cann, [0.0] * 4), Word(cann), Handle()
    with cann.captured(stream) as graph:
        cann.ok(_BEGIN, stream)
        values.add(1.0, stream)
        cann.ok(_END, stream, ctypes.byref(group))
        word.take(stream)
    cann.replay(graph, stream)
    look.doing("waiting for the kernel in front of a wait")
    while values.read() != [1.0] * 4:
        pass
    cann.ok(_UPDATE, lane, group)
    values.add(10.0, lane)
    cann.ok(_UPDATED, lane)
    updated = cann.call("aclrtSynchronizeStream", lane)
    word.write(gate, 1)
    replayed = cann.call("aclrtSynchronizeStream", stream)
    # The simulator names what nothing orders; a device goes on.
    expected = 507015 if is_simulated(cann) else 0
    look.expect("the failure of the update or the replay", updated or replayed, expected)
    look.expect("what the replay before the update added", values.read(), [1.0] * 4)


def destroyed_graph(look: Look) -> None:
    """Update a task group whose graph is destroyed."""
    cann = Cann()
    graph = Updatable(cann)
    cann.ok("aclmdlRIDestroy", graph.graph)
    look.doing("updating a task group whose graph is destroyed")
    look.expect("the begin of the update", cann.call(_UPDATE, graph.lane, graph.group), 107000)
