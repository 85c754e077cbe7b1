"""Collectives in captured graphs, and their order among other work of the device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_npu

import cann_sim

if TYPE_CHECKING:
    from collectives.rank_processes import RankProcesses

REPLAYS = 5


def replay(rank: int, *, warm: bool) -> dict[str, Any]:
    """Capture a layer with an all_reduce, as tensor parallelism has it, and replay it."""
    weights, inputs = torch.full((4,), rank + 1.0).to("npu"), torch.zeros(4).to("npu")
    if warm:
        dist.all_reduce(torch.ones(1).to("npu"))
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        partial = inputs * weights
        dist.all_reduce(partial)
        result = partial + 1.0
    before = cann_sim.counters()
    results = []
    for turn in range(REPLAYS):
        inputs.fill_(float(turn))
        graph.replay()
        results.append(result.cpu().tolist())
    counted = cann_sim.counters() - before
    return {"results": results, "collectives": counted.collectives, "replays": counted.replays}


def replay_cold(rank: int) -> dict[str, Any]:
    return replay(rank, warm=False)


def replay_warm(rank: int) -> dict[str, Any]:
    return replay(rank, warm=True)


def test_captured_all_reduce_is_replayed_with_the_new_values(two_ranks: RankProcesses) -> None:
    for function in (replay_warm, replay_cold):
        for result in two_ranks.run(function):
            assert result["results"] == [[3.0 * turn + 1.0] * 4 for turn in range(REPLAYS)]
            assert (result["collectives"], result["replays"]) == (REPLAYS, REPLAYS)


def replay_many(rank: int) -> dict[str, Any]:
    """Capture every sort of collective in one graph, and run far ahead of the device."""
    inputs = torch.full((8,), float(rank)).to("npu")
    dist.barrier()
    group = dist.group.WORLD
    assert group is not None
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        total = functional.all_reduce(inputs, "sum", group)
        gathered = functional.all_gather_tensor(total + rank, 0, group)
        scattered = functional.reduce_scatter_tensor(gathered, "sum", 0, group)
        exchanged = torch.empty(8, device=inputs.device)
        dist.all_to_all_single(exchanged, scattered * 1.0)
        dist.broadcast(exchanged, src=1)
        inputs += 1.0
    for _ in range(REPLAYS):
        graph.replay()
    return {"values": exchanged.cpu().tolist(), "inputs": inputs.cpu().tolist()}


def test_graph_of_many_collectives_replays_far_ahead_of_the_device(
    two_ranks: RankProcesses,
) -> None:
    for rank, result in enumerate(two_ranks.run(replay_many)):
        assert result["inputs"] == [float(rank + REPLAYS)] * 8
        # In the last replay: inputs rank + 4, their sum 9; rank 0 gathers 9s, rank 1 10s; both
        # ranks have gathered the same, so a share of the sum is 18 on rank 0, 20 on rank 1; rank 1
        # takes half of each, and broadcasts.
        assert result["values"] == [18.0] * 4 + [20.0] * 4


def issue_without_waiting(rank: int) -> bool:
    """Return whether the host went on while the other rank had not come."""
    tensor = torch.ones(4).to("npu")
    dist.barrier()
    torch_npu.npu.synchronize()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        went_on = not work.is_completed()
        # Rank 1 begins only now, so rank 0's call cannot have waited for it.
        store.set("issued", "yes")
    else:
        went_on = True
        store.get("issued")
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
    work.wait()
    return went_on and tensor.cpu().tolist() == [2.0] * 4


def test_host_does_not_wait_for_the_other_ranks(two_ranks: RankProcesses) -> None:
    assert two_ranks.run(issue_without_waiting) == [True, True]


def wait_long(rank: int) -> list[float]:
    """Make rank 0 wait, on the device and the host, longer than the deadlock detector does."""
    tensor = torch.ones(2).to("npu")
    dist.barrier()
    torch_npu.npu.synchronize()
    if rank == 1:
        # Longer than the detector waits.
        time.sleep(3)
    dist.all_reduce(tensor)
    values: list[float] = tensor.cpu().tolist()
    return values


def test_wait_for_a_late_rank_is_no_deadlock(start_ranks: Any) -> None:
    ranks = start_ranks(2, CANN_SIM_DEADLOCK_SECONDS="1")
    assert ranks.run(wait_long) == [[2.0, 2.0]] * 2


def reduce_in_turns(rank: int) -> list[float]:
    tensor = torch.full((100,), float(rank)).to("npu")
    torch_npu.npu.synchronize()
    with cann_sim.fuzzed_schedule(11):
        for _ in range(10):
            dist.all_reduce(tensor)
            tensor /= 2.0
        torch_npu.npu.synchronize()
    values: list[float] = sorted(set(tensor.tolist()))
    return values


def test_collectives_work_under_a_fuzzed_schedule(two_ranks: RankProcesses) -> None:
    assert two_ranks.run(reduce_in_turns) == [[0.5], [0.5]]


def run_null_kernels(rank: int) -> bool:
    tensor = torch.full((4,), float(rank)).to("npu")
    if rank == 0:
        dist.all_reduce(tensor)
        torch_npu.npu.synchronize()
    return True


def test_null_kernels_do_not_wait_for_other_ranks(start_ranks: Any) -> None:
    ranks = start_ranks(2, CANN_SIM_KERNELS="null")
    assert ranks.run(run_both_communicators) == [True, True]


def run_both_communicators(rank: int) -> bool:
    tensor = torch.zeros(4).to("npu")
    dist.all_reduce(tensor)
    # Making a communicator needs all ranks; using it does not, where kernels do nothing.
    return run_null_kernels(rank)
