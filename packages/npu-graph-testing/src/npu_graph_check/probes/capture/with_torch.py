"""What torch_npu makes of a capture: its generator, and its task queue."""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.cann.runtime import DEVICE_TO_HOST, Cann, Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look

_CAPTURES = 5
_FIRST_CLAIMED = (2, 13)


def random_numbers(look: Look) -> None:
    """Draw in replays, and eagerly from the same seed."""
    device = look.opened
    npu, on = _npu(), device.torch_device
    values, graph = torch.zeros(64, device=on), device.create_graph()
    npu.manual_seed(7)
    with device.capture(graph, pool=device.create_memory_pool()):
        values.uniform_()
    npu.manual_seed(7)
    drawn = []
    for _ in range(3):
        graph.replay()
        device.synchronize()
        drawn.append(values.cpu())
    npu.manual_seed(7)
    for number, seen in enumerate(drawn, start=1):
        eager = torch.zeros(64, device=on).uniform_().cpu()
        look.expect(f"replay {number} draws what eager call {number} draws", _same(seen, eager), 1)
    look.expect("replays draw anew", torch.equal(drawn[0], drawn[1]), False)


def pinned_copy_behind_a_wait(look: Look) -> None:
    """Copy to pinned memory right behind the wait that joins a stream, without the task queue.

    With torch_npu's queue such a capture may be refused; a race that no program can force.
    """
    major, minor = version("torch_npu").split(".")[:2]
    if (int(major), int(minor)) < _FIRST_CLAIMED:
        look.not_tried("nothing is claimed of torch_npu before 2.13; 2.10 may refuse it always")
    os.environ["TASK_QUEUE_ENABLE"] = "0"
    device = look.opened
    npu, on = _npu(), device.torch_device
    values = torch.zeros(1024, device=on)
    for number in range(1, _CAPTURES + 1):
        look.doing(f"capturing for the {number}. time")
        graph, side, seen = npu.NPUGraph(), npu.Stream(), "captured"
        try:
            with npu.graph(graph):
                main = npu.current_stream()
                side.wait_stream(main)
                with npu.stream(side):
                    copied = values.to("cpu", non_blocking=True)
                main.wait_stream(side)
                del copied
        except RuntimeError as error:
            seen = "107025" if "107025" in str(error) else str(error)
        look.expect(f"capture {number}", seen, "captured")


def dead_task_queue(look: Look) -> None:
    """Let a call be refused in torch_npu's task queue, and look at what comes behind it.

    Only the queue of this process ends.
    """
    os.environ["TASK_QUEUE_ENABLE"] = "1"
    device = look.opened
    npu, on = _npu(), device.torch_device
    values = torch.zeros(4, device=on)
    device.synchronize()

    def copy_in_a_capture() -> None:
        with npu.graph(npu.NPUGraph()):
            torch.ones(2).to(on, non_blocking=True)

    def add() -> None:
        values.add_(1)
        device.synchronize()

    look.doing("copying pageable memory in a capture")
    reported = [_fails(call) for call in (copy_in_a_capture, add, add)]
    look.expect("how often the refusal was reported", sum(reported), 1)
    cann = Cann()
    host = (ctypes.c_float * 4)()
    cann.ok("aclrtMemcpy", ctypes.byref(host), 16, Handle(values.data_ptr()), 16, DEVICE_TO_HOST)
    look.expect("what two kernels behind it added", list(host), [0.0] * 4)


def _fails(call: Callable[[], None]) -> bool:
    try:
        call()
    except RuntimeError:
        return True
    return False


def _same(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the share of values that are equal."""
    return float((one == other).float().mean())


def _npu() -> Any:
    return vars(torch)["npu"]
