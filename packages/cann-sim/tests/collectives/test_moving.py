"""Collectives that move tensors: gather, broadcast, scatter, exchange between all, messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch_npu

if TYPE_CHECKING:
    from collectives.rank_processes import RankProcesses

MOVED = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)


def given(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Return the input of a rank; the same values in every process."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 100, (count,), generator=generator).to(dtype)


def gather_all(rank: int, ranks: int) -> dict[Any, Any]:
    results: dict[Any, Any] = {}
    for dtype in MOVED:
        own = given(rank, dtype, 6).to("npu")
        gathered = [torch.zeros(6, dtype=dtype).to("npu") for _ in range(ranks)]
        dist.all_gather(gathered, own)
        results[dtype, "list"] = torch.stack([part.cpu() for part in gathered])
        into = torch.zeros(6 * ranks, dtype=dtype).to("npu")
        dist.all_gather_into_tensor(into, own)
        results[dtype, "tensor"] = into.cpu().reshape(ranks, 6)
    uneven = [torch.zeros(part + 1).to("npu") for part in range(ranks)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)).to("npu"))
    results["uneven"] = [part.cpu().tolist() for part in uneven]
    large = torch.zeros(ranks * 700_000, dtype=torch.int64).to("npu")
    dist.all_gather_into_tensor(large, given(rank, torch.int64, 700_000).to("npu"))
    results["large"] = large.cpu()
    return results


def test_all_gather_of_every_type_has_the_parts_in_the_order_of_ranks(
    four_ranks: RankProcesses,
) -> None:
    for result in four_ranks.run(gather_all, 4):
        for dtype in MOVED:
            expected = torch.stack([given(rank, dtype, 6) for rank in range(4)])
            assert torch.equal(result[dtype, "list"], expected), dtype
            assert torch.equal(result[dtype, "tensor"], expected), dtype
        assert result["uneven"] == [[float(part)] * (part + 1) for part in range(4)]
        expected = torch.cat([given(rank, torch.int64, 700_000) for rank in range(4)])
        assert torch.equal(result["large"], expected)


def send_from_root(rank: int, ranks: int, root: int) -> dict[Any, Any]:
    results: dict[Any, Any] = {}
    for dtype in MOVED:
        tensor = given(rank, dtype, 9).to("npu")
        dist.broadcast(tensor, src=root)
        results[dtype] = tensor.cpu()
    large = given(rank, torch.float32, 1_500_000).to("npu")
    dist.broadcast(large, src=root)
    results["large"] = large.cpu()
    share = torch.zeros(3).to("npu")
    parts = [torch.full((3,), 10.0 + part).to("npu") for part in range(ranks)]
    dist.scatter(share, parts if rank == root else None, src=root)
    results["scatter"] = share.cpu().tolist()
    words: list[Any] = [{"rank": rank}, "said"] if rank == root else [None, None]
    dist.broadcast_object_list(words, src=root)
    results["objects"] = words
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, ("object", rank))
    results["every object"] = every
    return results


def test_broadcast_and_scatter_give_what_the_root_has(four_ranks: RankProcesses) -> None:
    root = 2
    for rank, result in enumerate(four_ranks.run(send_from_root, 4, root)):
        for dtype in MOVED:
            assert torch.equal(result[dtype], given(root, dtype, 9)), dtype
        assert torch.equal(result["large"], given(root, torch.float32, 1_500_000))
        assert result["scatter"] == [10.0 + rank] * 3
        assert result["objects"] == [{"rank": root}, "said"]
        assert result["every object"] == [("object", other) for other in range(4)]


def exchange_all(rank: int, ranks: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    whole = (torch.arange(2 * ranks) + 100 * rank).to("npu")
    into = torch.zeros_like(whole)
    dist.all_to_all_single(into, whole)
    results["equal"] = into.cpu().tolist()
    # Rank r gives rank s so many elements: r + s, none from 0 to 0.
    counts = [rank + other for other in range(ranks)]
    given_parts = [torch.full((count,), 10 * rank + to) for to, count in enumerate(counts)]
    into = torch.zeros(sum(counts), dtype=torch.int64).to("npu")
    dist.all_to_all_single(into, torch.cat(given_parts).to("npu"), counts, counts)
    results["uneven"] = into.cpu().tolist()
    taken = [torch.zeros(3, dtype=torch.bfloat16).to("npu") for _ in range(ranks)]
    parts = [
        torch.full((3,), 10.0 * rank + to, dtype=torch.bfloat16).to("npu") for to in range(ranks)
    ]
    dist.all_to_all(taken, parts)
    results["list"] = [part.float().cpu().tolist() for part in taken]
    large = given(rank, torch.int32, ranks * 200_000).to("npu")
    into = torch.zeros_like(large)
    dist.all_to_all_single(into, large)
    results["large"] = into.cpu()
    return results


def test_all_to_all_exchanges_equal_and_uneven_shares(four_ranks: RankProcesses) -> None:
    for rank, result in enumerate(four_ranks.run(exchange_all, 4)):
        assert result["equal"] == [
            100 * other + 2 * rank + place for other in range(4) for place in range(2)
        ]
        assert result["uneven"] == [
            10 * other + rank for other in range(4) for _ in range(rank + other)
        ]
        assert result["list"] == [[10.0 * other + rank] * 3 for other in range(4)]
        shares = [given(other, torch.int32, 800_000).chunk(4)[rank] for other in range(4)]
        assert torch.equal(result["large"], torch.cat(shares))


def send_messages(rank: int, ranks: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    tensor = torch.arange(5.0).to("npu") if rank == 0 else torch.zeros(5).to("npu")
    if rank == 0:
        for other in range(1, ranks):
            dist.send(tensor * other, other)
    else:
        dist.recv(tensor, 0)
    results["send"] = tensor.cpu().tolist()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    own, taken = torch.full((400_000,), float(rank)).to("npu"), torch.zeros(400_000).to("npu")
    small, taken_small = torch.tensor([rank]).to("npu"), torch.tensor([-1]).to("npu")
    operations = [
        dist.P2POp(dist.isend, own, after),
        dist.P2POp(dist.irecv, taken, before),
        dist.P2POp(dist.isend, small, before),
        dist.P2POp(dist.irecv, taken_small, after),
    ]
    for done in dist.batch_isend_irecv(operations):
        done.wait()
    results["ring"] = (sorted(set(taken.tolist())), taken_small.cpu().tolist())
    works = []
    numbers = [torch.tensor([10 * rank + turn]).to("npu") for turn in range(3)]
    answers = [torch.tensor([0]).to("npu") for _ in range(3)]
    if rank in (0, 1):
        for turn in range(3):
            if rank == 0:
                works.append(dist.isend(numbers[turn], 1))
            else:
                works.append(dist.irecv(answers[turn], 0))
        for work in works:
            assert work is not None
            work.wait()
    results["order"] = [answer.cpu().item() for answer in answers]
    return results


def test_messages_arrive_in_order_and_around_a_ring(four_ranks: RankProcesses) -> None:
    for rank, result in enumerate(four_ranks.run(send_messages, 4)):
        factor = max(rank, 1)
        assert result["send"] == [factor * value for value in (0.0, 1.0, 2.0, 3.0, 4.0)]
        assert result["ring"] == ([float((rank - 1) % 4)], [(rank + 1) % 4])
        assert result["order"] == ([0, 1, 2] if rank == 1 else [0, 0, 0])


def use_group_calls(rank: int, ranks: int) -> dict[str, Any]:
    """Send around a ring between HCCL's group calls, with a communicator for each pair of ranks."""
    group = dist.group.WORLD
    assert group is not None
    backend: Any = group._get_backend(torch.device("npu"))
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    taken = torch.zeros(3).to("npu")
    total = torch.ones(100_000).to("npu")
    # The first message of two ranks makes a communicator, for which the host waits: so in order.
    for sender in range(ranks):
        if rank == sender:
            dist.send(taken, after)
        elif rank == (sender + 1) % ranks:
            dist.recv(taken, before)
    for turn in range(3):
        own = torch.full((3,), 10.0 * rank + turn).to("npu")
        backend._group_start()
        works = [dist.isend(own, after), dist.irecv(taken, before)]
        backend._group_end()
        for work in works:
            assert work is not None
            work.wait()
        backend._group_start()
        reduced = dist.all_reduce(total, async_op=True)
        backend._group_end()
        assert reduced is not None
        reduced.wait()
        taken = taken * 1.0
    return {"taken": taken.tolist(), "total": sorted(set(total.tolist()))}


@pytest.mark.absent_in_torch_npu("2.10", reason="process groups have no _group_start")
def test_messages_of_a_group_arrive_before_what_waits_for_them(four_ranks: RankProcesses) -> None:
    for rank, result in enumerate(four_ranks.run(use_group_calls, 4)):
        assert result["taken"] == [10.0 * ((rank - 1) % 4) + 2.0] * 3
        assert result["total"] == [64.0]


def send_to_a_late_rank(rank: int) -> bool:
    """Return on rank 0 whether its send lasted until the other rank received."""
    tensor = torch.ones(4).to("npu")
    store = dist.distributed_c10d._get_default_store()
    # The first message makes a communicator, for which the host waits.
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    if rank == 1:
        store.get("looked")
        dist.recv(tensor, 0)
        return tensor.tolist() == [2.0] * 4
    work = dist.isend(tensor * 2.0, 1)
    assert work is not None
    time.sleep(0.3)
    lasted = not work.is_completed()
    store.set("looked", "yes")
    work.wait()
    torch_npu.npu.synchronize()
    return lasted and work.is_completed()


def test_send_ends_when_the_other_rank_has_received(two_ranks: RankProcesses) -> None:
    assert two_ranks.run(send_to_a_late_rank) == [True, True]


def use_groups(rank: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    halves: list[Any] = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = halves[rank // 2]
    odd: Any = dist.new_group([1, 3])
    tensor = torch.tensor([float(rank)]).to("npu")
    dist.all_reduce(tensor, group=own)
    results["half"] = tensor.item()
    if rank % 2 == 1:
        tensor = torch.tensor([float(rank)]).to("npu")
        dist.all_reduce(tensor, group=odd)
        results["odd"] = tensor.item()
    works = []
    tensors = [torch.full((50_000,), float(rank + turn)).to("npu") for turn in range(6)]
    for turn, tensor in enumerate(tensors):
        group = own if turn % 2 else None
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
    for work in works:
        assert work is not None
        work.wait()
    results["both"] = [sorted(set(tensor.tolist())) for tensor in tensors]
    dist.barrier(group=own)
    dist.destroy_process_group(own)
    tensor = torch.ones(1).to("npu")
    dist.all_reduce(tensor)
    results["after"] = tensor.item()
    return results


def test_sub_groups_and_the_whole_group_work_together(four_ranks: RankProcesses) -> None:
    for rank, result in enumerate(four_ranks.run(use_groups)):
        assert result["half"] == (1.0 if rank < 2 else 5.0)
        assert result.get("odd") == (4.0 if rank % 2 else None)
        half = 1 if rank < 2 else 5
        assert result["both"] == [
            [float(half + 2 * turn if turn % 2 else 6 + 4 * turn)] for turn in range(6)
        ]
        assert result["after"] == 4.0


def use_one_rank(rank: int) -> dict[str, Any]:
    assert dist.get_world_size() == 1
    results: dict[str, Any] = {}
    tensor = torch.arange(3.0).to("npu")
    dist.all_reduce(tensor)
    results["all_reduce"] = tensor.cpu().tolist()
    into = torch.zeros(3).to("npu")
    dist.all_gather_into_tensor(into, tensor)
    results["all_gather"] = into.cpu().tolist()
    into = torch.zeros(3).to("npu")
    dist.reduce_scatter_tensor(into, tensor)
    results["reduce_scatter"] = into.cpu().tolist()
    into = torch.zeros(3).to("npu")
    dist.all_to_all_single(into, tensor)
    results["all_to_all"] = into.cpu().tolist()
    dist.broadcast(tensor, src=rank)
    dist.barrier()
    results["broadcast"] = tensor.cpu().tolist()
    return results


def test_collectives_of_one_rank_give_its_own_values(one_rank: RankProcesses) -> None:
    results = one_rank.run(use_one_rank)[0]
    assert len(results) == 5
    assert all(value == [0.0, 1.0, 2.0] for value in results.values())
