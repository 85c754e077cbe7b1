"""What torch_npu makes of a capture: its generator, and its task queue."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.opened_device import open_device

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_CAPTURES, _LAUNCHES = 5, 200
_UNJOINED = "107025"


def random_numbers(look: Look) -> None:
    """Draw in replays, and eagerly from the same seed."""
    device = open_device(look)
    npu, on = _npu(), device.torch_device
    values, graph = torch.zeros(64, device=on), device.create_graph()
    npu.manual_seed(7)
    with device.capture(graph, pool=device.create_pool()):
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


def pinned_copy_behind_a_wait(look: Look, task_queue: str) -> None:
    """Copy pinned memory right behind the wait that joins a stream.

    Args:
        look: takes what is seen.
        task_queue: ``with`` or ``without`` torch_npu's.
    """
    os.environ["TASK_QUEUE_ENABLE"] = "1" if task_queue == "with" else "0"
    refused = _refused(look)
    look.figure(f"refused captures of {_CAPTURES}", refused, "captures")
    what = f"whether captures were refused, {task_queue} the task queue"
    look.expect(what, refused > 0, task_queue == "with")


def _refused(look: Look) -> int:
    device = open_device(look)
    npu, on = _npu(), device.torch_device
    values, refused = torch.zeros(1024, device=on), 0
    for number in range(_CAPTURES):
        look.doing(f"capturing for the {number + 1}. time")
        graph, side = npu.NPUGraph(), npu.Stream()
        try:
            with npu.graph(graph):
                for _ in range(_LAUNCHES):
                    values.add_(0)
                main = npu.current_stream()
                side.wait_stream(main)
                with npu.stream(side):
                    pinned = torch.empty(1024, pin_memory=True)
                    values.copy_(pinned, non_blocking=True)
                main.wait_stream(side)
                del pinned
        except RuntimeError as error:
            if _UNJOINED not in str(error):
                raise
            refused += 1
    return refused


def _same(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the share of values that are equal."""
    return float((one == other).float().mean())


def _npu() -> Any:
    return vars(torch)["npu"]
