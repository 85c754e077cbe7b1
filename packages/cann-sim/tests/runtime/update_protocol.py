"""A program: the replay-and-update protocol, or one mistake in it, under many fuzzed schedules.

Arguments: scenario, first seed, number of seeds. It prints how many schedules ended how, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from typing import Any

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
import torch_npu  # noqa: E402

STEPS = 3
CAPTURED = 1.0


class Protocol:
    """A graph whose multiplication is updated for each of a few steps."""

    def __init__(self) -> None:
        self.npu: Any = torch_npu.npu
        self.value = torch.ones(1, device="npu:0")
        self.product = torch.zeros(1, device="npu:0")
        self.results = torch.zeros(STEPS, device="npu:0")
        self.event = self.npu.ExternalEvent()
        self.graph = self.npu.NPUGraph()
        self.streams = [self.npu.Stream(), self.npu.Stream()]
        self.waiting = True
        if os.environ.get("CANN_SIM_EXTERNAL_EVENTS") == "event":
            # In this form a wait before the first record captures nothing.
            self.event.record(self.streams[0])
            self.event.reset(self.streams[0])
            self.npu.synchronize()

    def capture(self) -> None:
        with self.npu.graph(self.graph):
            main = self.npu.current_stream()
            if self.waiting:
                self.event.wait(main)
                self.event.reset(main)
            self.npu.graph_task_group_begin(main)
            torch.mul(self.value, CAPTURED, out=self.product)
            self.task = self.npu.graph_task_group_end(main)

    def update(self, factor: float, *, record: bool = True, stream: int = 0) -> None:
        updates = self.streams[stream]
        with self.npu.stream(updates):
            self.npu.graph_task_update_begin(updates, self.task)
            torch.mul(self.value, factor, out=self.product)
            self.npu.graph_task_update_end(updates)
            if record:
                self.event.record(updates)

    def replay(self, step: int) -> None:
        self.graph.replay()
        self.results[step].copy_(self.product[0])

    def release(self) -> None:
        """Start the next schedule on a device that works, with no record."""
        cann_sim.restart_devices()
        # A record that no wait took: in one form a wait takes it, in the other a reset.
        self.event.record(self.streams[1])
        self.event.wait(self.streams[1])
        self.event.reset(self.streams[1])
        self.npu.synchronize()


def kept(protocol: Protocol) -> None:
    for step in range(STEPS):
        protocol.streams[0].wait_stream(protocol.npu.current_stream())
        protocol.replay(step)
        protocol.update(float(step + 2))


def synchronised(protocol: Protocol) -> None:
    """The host waits for the replay of a step before it updates the next, as engines do."""
    for step in range(STEPS):
        protocol.npu.synchronize()
        protocol.replay(step)
        protocol.update(float(step + 2))


def early_update(protocol: Protocol) -> None:
    """The update of a step does not wait for the replay before it."""
    for step in range(STEPS):
        protocol.replay(step)
        protocol.update(float(step + 2))


def missing_record(protocol: Protocol) -> None:
    for step in range(STEPS):
        protocol.streams[0].wait_stream(protocol.npu.current_stream())
        protocol.replay(step)
        protocol.update(float(step + 2), record=step != 1)


def two_updaters(protocol: Protocol) -> None:
    """Two updates of one step; the second comes after the record that releases the replay."""
    for step in range(STEPS):
        protocol.streams[0].wait_stream(protocol.npu.current_stream())
        protocol.replay(step)
        protocol.update(CAPTURED)
        protocol.update(float(step + 2), record=False)


def no_wait(protocol: Protocol) -> None:
    """The graph was captured without a wait before its task group."""
    for step in range(STEPS):
        protocol.streams[0].wait_stream(protocol.npu.current_stream())
        protocol.replay(step)
        protocol.update(float(step + 2))


def no_update(protocol: Protocol) -> None:
    """The argument changes and nothing updates the graph: the captured value is used."""
    for step in range(STEPS):
        protocol.replay(step)


SCENARIOS = {
    f.__name__: f
    for f in (
        kept,
        synchronised,
        early_update,
        missing_record,
        two_updaters,
        no_wait,
        no_update,
    )
}
NAMED = {
    "named deadlock": r"deadlock: .*stream \d+, graph \d+, before operator aclnnMuls waits for "
    r"(the external event at 0x[0-9a-f]+, which was (never recorded|not recorded again)|"
    r"event \d+, whose record on stream \d+ has not run or was reset)",
    "named race": r"aclnnMuls: nothing orders (this replay behind the task update on stream \d+|"
    r"the task update on stream \d+ behind the (replay|one) on stream \d+)",
    "named freed arguments": r"aclnnMuls: the task update on stream \d+ came while this replay was "
    r"at the kernel, whose arguments it freed",
}


def outcome(protocol: Protocol, scenario: str, seed: int) -> str:
    expected = [float(step + 2) for step in range(STEPS)]
    protocol.results.zero_()
    protocol.npu.synchronize()
    cann_sim.set_schedule(f"fuzz:{seed}")
    try:
        SCENARIOS[scenario](protocol)
        protocol.npu.synchronize()
    except RuntimeError as error:
        named = [name for name, text in NAMED.items() if re.search(text, str(error))]
        protocol.release()
        return named[0] if named else f"error {error}"
    finally:
        protocol.npu.synchronize()
        cann_sim.set_schedule("free")
    return "right" if protocol.results.cpu().tolist() == expected else "stale"


def main() -> None:
    scenario, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    protocol = Protocol()
    protocol.waiting = scenario not in {"no_update", "no_wait"}
    protocol.capture()
    found = Counter(outcome(protocol, scenario, seed) for seed in range(first, first + count))
    print(json.dumps(found))  # noqa: T201 (the answer of the program)


if __name__ == "__main__":
    main()
