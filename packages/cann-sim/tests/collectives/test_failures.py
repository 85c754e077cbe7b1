"""Ranks that disagree, do not come, fail, or end: an error on every rank instead of a hang."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch_npu

import cann_sim
from collectives.rank_processes import RankError, RankProcesses

if TYPE_CHECKING:
    from pathlib import Path

FFTS_PLUS_TIMEOUT = 507048
MODEL_EXECUTE = 507011


def message_of(action: Any) -> str:
    """Return the device's message of a failure; empty if there was none."""
    try:
        action()
        torch_npu.npu.synchronize()
    except RuntimeError as error:
        return str(error)
    return ""


def reduce_different_counts(rank: int) -> str:
    return message_of(lambda: dist.all_reduce(torch.ones(4 + rank).to("npu")))


def test_different_counts_fail_on_all_ranks_with_what_each_is_at(two_ranks: RankProcesses) -> None:
    for message in two_ranks.run(reduce_different_counts):
        assert f"error code is {FFTS_PLUS_TIMEOUT}" in message
        assert "EI0002" in message
        assert "HcclAllReduce of 4 float32, sum" in message
        assert "HcclAllReduce of 5 float32, sum" in message
        assert "rank 0: " in message
        assert "rank 1: " in message
    # The ranks continue in a new group.
    assert two_ranks.run(reduce_ones) == [2.0, 2.0]


def reduce_ones(rank: int) -> float:
    tensor = torch.ones(1).to("npu")
    dist.all_reduce(tensor)
    return float(tensor.item())


def call_different_collectives(rank: int) -> str:
    if rank == 0:
        return message_of(lambda: dist.all_reduce(torch.ones(4).to("npu")))
    return message_of(lambda: dist.broadcast(torch.ones(4).to("npu"), src=0))


def test_different_collectives_fail_on_all_ranks(two_ranks: RankProcesses) -> None:
    for message in two_ranks.run(call_different_collectives):
        assert "HcclAllReduce of 4 float32, sum" in message
        assert "HcclBroadcast of 4 float32, from root 0" in message


def exchange_different_sizes(rank: int) -> str:
    counts = [[1, 2], [3, 1]][rank]
    into = torch.zeros(2 if rank else 4).to("npu")
    taken = [1, 3] if rank == 0 else [1, 1]
    return message_of(
        lambda: dist.all_to_all_single(into, torch.ones(sum(counts)).to("npu"), taken, counts)
    )


def test_shares_of_different_sizes_fail_on_both_ranks(two_ranks: RankProcesses) -> None:
    for message in two_ranks.run(exchange_different_sizes):
        assert "HcclAlltoAllV, receiving 1 float32 from rank 0" in message
        assert "but rank 0 sends 2 float32" in message


def read_after_failure(rank: int) -> str:
    """Read a result on a stream that itself did not fail."""
    tensor = torch.ones(4 + rank).to("npu")
    try:
        dist.all_reduce(tensor)
        return str(tensor.cpu().tolist())
    except RuntimeError as error:
        return str(error)


def test_reading_the_result_of_a_failed_collective_raises(two_ranks: RankProcesses) -> None:
    for message in two_ranks.run(read_after_failure):
        assert f"error code:{FFTS_PLUS_TIMEOUT}" in message


def come_never(rank: int) -> str:
    # Read when the communicator is made, by the first collective.
    os.environ["HCCL_EXEC_TIMEOUT"] = "4"
    dist.barrier()
    del os.environ["HCCL_EXEC_TIMEOUT"]
    torch_npu.npu.synchronize()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.get("over")
    message = message_of(lambda: dist.all_reduce(torch.ones(4).to("npu")))
    if rank == 0:
        store.set("over", "yes")
    return message


def test_missing_rank_is_named_at_the_timeout(two_ranks: RankProcesses) -> None:
    first, second = two_ranks.run(come_never)
    assert "EI0002" in first
    assert "HcclAllReduce of 4 float32, sum waited 4.0 s (HCCL_EXEC_TIMEOUT)" in first
    assert "ranks that did not come: rank 1 (process " in first
    # One that arrives later gets the error too.
    assert "the communicator failed: rank 0: HcclAllReduce of 4 float32" in second


def wait_for_ended(rank: int, path: str) -> str:
    method = f"file://{path}"
    dist.init_process_group("hccl", init_method=method, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1).to("npu"))
    torch_npu.npu.synchronize()
    if rank == 1:
        return "ready to be ended"
    return message_of(lambda: dist.all_reduce(torch.ones(4).to("npu")))


def test_rank_whose_process_was_killed_is_named_soon(start_ranks: Any, tmp_path: Path) -> None:
    ranks = start_ranks(2)
    for rank in range(2):
        ranks.start(rank, wait_for_ended, str(tmp_path / "store"))
    assert ranks.result(1) == "ready to be ended"
    ranks.kill(1)
    message = ranks.result(0)
    assert "waits for ranks that never come: rank 1 (process " in message
    assert ") has ended" in message
    assert "HcclAllReduce of 4 float32, sum" in message
    with pytest.raises(RankError, match="the process of rank 1 has ended"):
        ranks.result(1)


def fail_on_purpose(rank: int) -> tuple[str, str]:
    tensor = torch.ones(4).to("npu")
    dist.all_reduce(tensor)
    torch_npu.npu.synchronize()
    if rank == 1:
        with cann_sim.injected_faults("run(HcclAllReduce):1"):
            first = message_of(lambda: dist.all_reduce(tensor))
    else:
        first = message_of(lambda: dist.all_reduce(tensor))
    cann_sim.restart_devices()
    return first, message_of(lambda: dist.all_reduce(tensor))


def test_injected_fault_of_one_rank_is_reported_to_all(two_ranks: RankProcesses) -> None:
    (first, later_first), (second, later_second) = two_ranks.run(fail_on_purpose)
    assert "an injected fault (CANN_SIM_FAULTS, run of HcclAllReduce)" in first
    assert "the communicator failed: rank 1" in first
    assert "an injected fault" in second
    # What came later is not taken for what was skipped.
    assert "the communicator failed: rank 1" in later_first
    assert "the communicator failed: rank 1" in later_second


def fail_in_replay(rank: int) -> str:
    tensor = torch.ones(4).to("npu")
    dist.all_reduce(tensor)
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        dist.all_reduce(tensor)
    graph.replay()
    torch_npu.npu.synchronize()
    if rank == 0:
        return message_of(graph.replay)
    return message_of(lambda: dist.broadcast(tensor, src=0))


def test_replay_against_another_collective_fails_as_a_replay(two_ranks: RankProcesses) -> None:
    first, second = two_ranks.run(fail_in_replay)
    assert f"error code is {MODEL_EXECUTE}" in first
    for message in (first, second):
        assert "HcclAllReduce of 4 float32, sum" in message
        assert "HcclBroadcast of 4 float32" in message


def leave_early(rank: int) -> str:
    group: Any = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1).to("npu"), group=group)
    torch_npu.npu.synchronize()
    if rank == 1:
        dist.destroy_process_group(group)
        return ""
    return message_of(lambda: dist.all_reduce(torch.ones(2).to("npu"), group=group))


def test_rank_that_destroyed_the_communicator_is_named(two_ranks: RankProcesses) -> None:
    first, _ = two_ranks.run(leave_early)
    assert "rank 1 has destroyed the communicator" in first
