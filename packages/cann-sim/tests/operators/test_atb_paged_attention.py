"""Paged attention of ATB: against float64, in graphs whose lengths are updated, and refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

import cann_sim
from operators.drawn_tensors import random
from operators.paged_batch import PagedBatch, causal, close

HALVES = [torch.bfloat16, torch.float16]
NAME = "PagedAttentionOperation"


def decode(batch: PagedBatch, lengths: list[int] | None = None, **changes: Any) -> torch.Tensor:
    arguments: dict[str, Any] = {
        "query": batch.query.to("npu"),
        "key_cache": batch.key.to("npu"),
        "value_cache": batch.value.to("npu"),
        "num_kv_heads": batch.kv_heads,
        "num_heads": batch.heads,
        "scale_value": batch.scale,
        "block_table": batch.table.to("npu"),
        "context_lens": torch.tensor(lengths or batch.key_lengths, dtype=torch.int32),
        "out": batch.out(),
        **changes,
    }
    torch_npu._npu_paged_attention(**arguments)
    out = arguments["out"]
    assert isinstance(out, torch.Tensor)
    return out


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("heads", "kv_heads", "value_dim"), [(4, 4, 32), (8, 2, 32), (6, 1, 16)])
def test_decode_attends_to_pages(
    conformance: Any, dtype: torch.dtype, heads: int, kv_heads: int, value_dim: int
) -> None:
    batch = PagedBatch(
        [1, 16, 17, 100], dtype=dtype, heads=heads, kv_heads=kv_heads, value_dim=value_dim
    )
    close(conformance, decode(batch), batch.reference()[0], 100)


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=5),
    block=st.sampled_from([16, 32, 128]),
    group=st.sampled_from([1, 3]),
    dtype=st.sampled_from(HALVES),
)
def test_decode_of_any_lengths_equals_the_reference(
    conformance: Any, lengths: list[int], block: int, group: int, dtype: torch.dtype
) -> None:
    batch = PagedBatch(lengths, dtype=dtype, heads=2 * group, block=block)
    close(conformance, decode(batch), batch.reference()[0], 70)


def test_merged_cache_takes_values_out_of_keys(conformance: Any) -> None:
    batch = PagedBatch([5, 40], heads=4, kv_heads=1, dim=96, value_dim=64)
    batch.value = batch.key[..., :64]
    out = batch.out()
    torch_npu._npu_paged_attention_mla(
        batch.query.to("npu"),
        batch.key.to("npu"),
        1,
        4,
        batch.scale,
        batch.table.to("npu"),
        torch.tensor(batch.key_lengths, dtype=torch.int32),
        64,
        out,
    )
    close(conformance, out, batch.reference()[0], 40)


@pytest.mark.parametrize("dtype", HALVES)
def test_several_queries_a_sequence_see_what_their_mask_shows(
    conformance: Any, dtype: torch.dtype
) -> None:
    batch = PagedBatch([40, 7, 33], [5, 7, 1], dtype=dtype)
    masks = [causal(q, k).clamp_min(-10000) for q, k in zip([5, 7, 1], [40, 7, 33], strict=True)]
    mask = torch.cat([torch.nn.functional.pad(m, (0, 40 - m.shape[1])) for m in masks])
    out = batch.out()
    torch_npu._npu_paged_attention_splitfuse(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.value.to("npu"),
        batch.table.to("npu"),
        torch.tensor(batch.key_lengths, dtype=torch.int32),
        mask.to(dtype).to("npu"),
        torch.tensor([5, 7, 1], dtype=torch.int32),
        2,
        4,
        batch.scale,
        out,
    )
    biases = [m.to(dtype).double() for m in masks]
    close(conformance, out, batch.reference(biases=biases)[0], 40)


@pytest.mark.parametrize("by_sequence", [False, True])
def test_alibi_mask_is_added_by_head(conformance: Any, by_sequence: bool) -> None:
    batch = PagedBatch([10, 30])
    shape = (2, 4, 1, 30) if by_sequence else (4, 1, 30)
    mask = random(*shape, seed=9, dtype=batch.dtype)
    out = torch_npu.atb._npu_paged_attention_v2(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.table.to("npu"),
        batch.key_lengths,
        value_cache=batch.value.to("npu"),
        mask=mask.to("npu"),
        num_kv_heads=2,
        num_heads=4,
        scale_value=batch.scale,
        mask_type=2,
        out=batch.out(),
    )
    own = mask if by_sequence else mask.expand(2, -1, -1, -1)
    biases = [own[i, :, :, :keys].double() for i, keys in enumerate(batch.key_lengths)]
    close(conformance, out, batch.reference(biases=biases)[0], 30)


class Captured:
    """A graph with one paged attention, whose lengths are updated after each replay."""

    def __init__(self, npu: Any, batch: PagedBatch, workspace_lengths: list[int]) -> None:
        self.npu, self.batch = npu, batch
        self.stream, self.event, self.graph = npu.Stream(), npu.ExternalEvent(), npu.NPUGraph()
        self.arguments = {
            "query": batch.query.to("npu"),
            "key_cache": batch.key.to("npu"),
            "value_cache": batch.value.to("npu"),
            "num_kv_heads": batch.kv_heads,
            "num_heads": batch.heads,
            "scale_value": batch.scale,
            "block_table": batch.table.to("npu"),
            "out": batch.out(),
        }
        self.arguments["workspace"] = torch_npu._npu_paged_attention_get_workspace(
            **self.arguments, context_lens=torch.tensor(workspace_lengths, dtype=torch.int32)
        )
        with npu.graph(self.graph):
            main = npu.current_stream()
            self.event.wait(main)
            self.event.reset(main)
            npu.graph_task_group_begin(main)
            self.launch(batch.key_lengths)
            self.handle = npu.graph_task_group_end(main)

    def launch(self, lengths: list[int]) -> None:
        lens = torch.tensor(lengths, dtype=torch.int32)
        torch_npu._npu_paged_attention(**self.arguments, context_lens=lens)

    def step(self, lengths: list[int]) -> torch.Tensor:
        self.graph.replay()
        with self.npu.stream(self.stream):
            self.npu.graph_task_update_begin(self.stream, self.handle)
            self.launch(lengths)
            self.npu.graph_task_update_end(self.stream)
            self.event.record(self.stream)
        self.npu.synchronize()
        out = self.arguments["out"]
        assert isinstance(out, torch.Tensor)
        return out


@pytest.mark.parametrize("dtype", HALVES)
def test_captured_decode_follows_the_lengths_of_its_updates(
    npu: Any, conformance: Any, dtype: torch.dtype
) -> None:
    batch = PagedBatch([1, 1], dtype=dtype, pages=6)
    captured = Captured(npu, batch, [96, 96])
    before = cann_sim.counters()
    for lengths in ([1, 96], [33, 2], [16, 17], [95, 64]):
        close(conformance, captured.step(lengths), batch.reference(lengths)[0], 96)
    during = cann_sim.counters() - before
    assert during.task_updates == 4
    assert during.launches_by_operator[NAME] == 4


def small(**changes: Any) -> PagedBatch:
    return PagedBatch([3, 64], pages=4, dtype=torch.float16, **changes)


def lengths(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"context_lens": lengths(3, 64).to("npu")}, "'context_lens': expected a CPU tensor"),
    ({"context_lens": lengths(3, 4, dtype=torch.int64)}, "'context_lens': .*int32.*found.*int64"),
    ({"context_lens": lengths(3)}, "one length for each of the 2 rows of 'query', found 1"),
    ({"context_lens": lengths(3, -1)}, "'context_lens': expected lengths of at least 0, found -1"),
    ({"num_kv_heads": 3}, "'num_kv_heads': expected a divisor"),
    ({"query": small().query.float().to("npu")}, "'query': expected .*found.*float32"),
    ({"key_cache": small().key.bfloat16().to("npu")}, "'key_cache': expected"),
    ({"key_cache": small(block=24).key.to("npu")}, "'key_cache': expected a block size.*found 24"),
    ({"key_cache": small(dim=48).key.to("npu")}, "'key_cache': expected heads of 32"),
    ({"block_table": small().table.long().to("npu")}, "'block_table': expected .*found.*int64"),
    ({"block_table": small().table[:1].to("npu")}, "'block_table': expected at least 2 rows"),
    ({"out": small().query[:1].to("npu")}, "'out': expected"),
    (
        {"workspace": torch.zeros(4, dtype=torch.uint8).to("npu")},
        "a workspace of at least .* found 4",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_decode_that_the_device_has_not_is_refused(
    npu: Any, changes: dict[str, Any], message: str
) -> None:
    # A refusal in torch_npu's task queue ends the queue for good.
    with npu.stream(npu.SyncLaunchStream()):
        with pytest.raises(RuntimeError, match=f"(?s){NAME}.*{message}"):
            decode(small(), **changes)
        decode(small())


def test_decode_beyond_the_pages_of_its_table_fails_when_it_runs(npu: Any) -> None:
    decode(small(), [3, 65])
    with pytest.raises(RuntimeError, match=r"(?s)'block_table': row 1 expected at least 5 blocks"):
        npu.synchronize()


def test_workspace_is_largest_at_middle_lengths_and_a_smaller_one_is_refused(npu: Any) -> None:
    batch = PagedBatch([1], pages=512)
    sizes = {}
    for length in (64, 6144, 8192):
        captured = Captured(npu, batch, [length])
        workspace = captured.arguments["workspace"]
        assert isinstance(workspace, torch.Tensor)
        sizes[length] = workspace.numel()
    assert sizes[64] < sizes[8192] < sizes[6144]
    with npu.stream(npu.SyncLaunchStream()), pytest.raises(RuntimeError, match="workspace of"):
        decode(batch, [6144], workspace=torch.empty(sizes[8192], dtype=torch.uint8).to("npu"))
