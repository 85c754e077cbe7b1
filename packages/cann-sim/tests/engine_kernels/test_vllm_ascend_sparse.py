"""Sparse latent attention of vllm-ascend against float64, and what it refuses of its metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch

import cann_sim
from cann_sim.engine_kernels.vllm_ascend_sparse import register

WIDTH, WINDOW, HEADS, CHOSEN, SCALE = 512, 128, 2, 512, 0.04
BLOCK, BLOCKS_OF_SEQUENCE = 16, 10
ATTENTION = "_C_ascend::npu_sparse_flash_mla"


@pytest.fixture(autouse=True)
def operators(npu: Any) -> None:
    register()
    register()


@dataclass(frozen=True, kw_only=True)
class Call:
    """Inputs on the CPU; a ratio of 0 is without compressed keys."""

    rows: list[int]
    keys: list[int]
    ratio: int
    query: torch.Tensor
    caches: list[torch.Tensor]
    table: torch.Tensor
    indices: torch.Tensor
    sinks: torch.Tensor

    def lengths(self) -> dict[str, Any]:
        """Return the arguments that both operators take, on the device."""
        given = {"cu_seqlens_q": [0, *accumulate(self.rows)], "seqused_ori_kv": self.keys}
        if self.ratio:
            given["seqused_cmp_kv"] = [count // self.ratio for count in self.keys]
            given["cmp_residual_kv"] = [count % self.ratio for count in self.keys]
        return {
            **{k: torch.tensor(v, dtype=torch.int32).to("npu") for k, v in given.items()},
            "ori_mask_mode": 4,
            "ori_win_left": WINDOW - 1,
            "ori_win_right": 0,
            "layout_q": "TND",
            "layout_kv": "PA_BBND",
            "cmp_ratio": self.ratio,
            "cmp_mask_mode": 3 if self.ratio else 0,
        }

    def metadata(self, lengths: dict[str, Any]) -> torch.Tensor:
        """Launch what makes the metadata."""
        made: torch.Tensor = torch.ops._C_ascend.npu_sparse_flash_mla_metadata(
            HEADS,
            1,
            WIDTH,
            **lengths,
            cmp_topk=CHOSEN if self.ratio else 0,
            has_cmp_kv=bool(self.ratio),
        )
        return made

    def arguments(self) -> dict[str, Any]:
        """Return what the attention takes besides lengths and metadata, on the device."""
        given = {"ori_kv": self.caches[0], "ori_block_table": self.table, "sinks": self.sinks}
        if self.ratio:
            given |= {"cmp_kv": self.caches[1], "cmp_block_table": self.table}
            given["cmp_sparse_indices"] = self.indices
        return {"q": self.query.to("npu"), **{k: v.to("npu") for k, v in given.items()}}

    def attend(self, lengths: dict[str, Any], metadata: torch.Tensor | None) -> torch.Tensor:
        """Launch the attention."""
        found: torch.Tensor = torch.ops._C_ascend.npu_sparse_flash_mla(
            **self.arguments(), **lengths, metadata=metadata, softmax_scale=SCALE
        )[0]
        return found

    def expected(self) -> torch.Tensor:
        """Return the output in float64, without rows behind the last sequence."""
        outputs, token = [], 0
        for sequence, (rows, keys) in enumerate(zip(self.rows, self.keys, strict=True)):
            blocks = self.table[sequence].long()
            original, compressed = (cache[blocks].reshape(-1, WIDTH) for cache in self.caches)
            for row in range(rows):
                end = max(keys - rows + row + 1, 0)
                taken = [original[max(end - WINDOW, 0) : end]]
                if self.ratio:
                    chosen = self.indices[token, 0].long()
                    taken.append(compressed[chosen[(chosen >= 0) & (chosen < end // self.ratio)]])
                outputs.append(self._attended(token, torch.cat(taken).double()))
                token += 1
        return torch.stack(outputs)

    def _attended(self, token: int, keys: torch.Tensor) -> torch.Tensor:
        scores = self.query[token].double() @ keys.T * SCALE
        weights = torch.cat([scores, self.sinks.double().unsqueeze(1)], 1).softmax(1)
        return weights[:, :-1] @ keys


def draw(*, rows: list[int], keys: list[int], ratio: int, padding: int = 0) -> Call:
    torch.manual_seed(0)
    tokens, blocks = sum(rows) + padding, 1 + len(rows) * BLOCKS_OF_SEQUENCE
    indices = torch.full((tokens, 1, CHOSEN), -1, dtype=torch.int32)
    for token in range(tokens):
        chosen = torch.randperm(BLOCK * BLOCKS_OF_SEQUENCE)[:20]
        indices[token, 0, 3:23] = chosen.int()
    return Call(
        rows=rows,
        keys=keys,
        ratio=ratio,
        query=torch.randn(tokens, HEADS, WIDTH).bfloat16(),
        caches=[torch.randn(blocks, BLOCK, 1, WIDTH).bfloat16() for _ in range(2)],
        table=torch.randperm(blocks)[: blocks - 1].reshape(len(rows), -1).int(),
        indices=indices,
        sinks=torch.randn(HEADS),
    )


PLAIN: dict[str, Any] = {"rows": [1, 3, 1], "keys": [5, 140, 0]}


@pytest.mark.parametrize("ratio", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "changes",
    [{}, {"rows": [1], "keys": [1]}, {"rows": [40, 0, 2], "keys": [150, 0, 1]}, {"padding": 3}],
)
def test_values_are_those_of_float64(npu: Any, ratio: int, changes: dict[str, Any]) -> None:
    call = draw(**{**PLAIN, **changes, "ratio": ratio})
    lengths = call.lengths()
    before = cann_sim.counters()
    found = call.attend(lengths, call.metadata(lengths)).cpu()
    counted = (cann_sim.counters() - before).launches_by_operator
    assert counted[ATTENTION] == counted[f"{ATTENTION}_metadata"] == 1
    expected = call.expected()
    torch.testing.assert_close(
        found[: len(expected)].double(), expected, rtol=0.01, atol=0.01, check_dtype=False
    )


def test_a_replay_reads_the_lengths_and_the_metadata_anew(npu: Any) -> None:
    call = draw(**PLAIN, ratio=2)
    lengths, arguments = call.lengths(), call.arguments()
    metadata = call.metadata(lengths)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        found = torch.ops._C_ascend.npu_sparse_flash_mla(
            **arguments, **lengths, metadata=metadata, softmax_scale=SCALE
        )[0]
    for keys in ([7, 139, 2], [150, 3, 60]):
        step = replace(call, keys=keys)
        for name, value in step.lengths().items():
            if isinstance(value, torch.Tensor):
                lengths[name].copy_(value)
        metadata.copy_(step.metadata(lengths))
        graph.replay()
        torch.testing.assert_close(
            found.cpu().double(), step.expected(), rtol=0.01, atol=0.01, check_dtype=False
        )


def _stale(call: Call, metadata: torch.Tensor, lengths: dict[str, Any]) -> None:
    lengths["seqused_ori_kv"].add_(1)


def _empty(call: Call, metadata: torch.Tensor, lengths: dict[str, Any]) -> None:
    metadata.zero_()


def _overwritten(call: Call, metadata: torch.Tensor, lengths: dict[str, Any]) -> None:
    metadata[:512].fill_(1)


def _of_other_attributes(call: Call, metadata: torch.Tensor, lengths: dict[str, Any]) -> None:
    other = replace(call, ratio=4)
    metadata.copy_(other.metadata({**lengths, "cmp_ratio": 4}))


def _of_other_memory(call: Call, metadata: torch.Tensor, lengths: dict[str, Any]) -> None:
    metadata.fill_(7)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_stale, "its metadata was made for other lengths; run npu_sparse_flash_mla_metadata"),
        (_empty, "its metadata is empty"),
        (_overwritten, "its metadata was overwritten after it was made"),
        (_of_other_attributes, "was made for other sequences, heads, cmp_ratio or cmp_topk"),
        (_of_other_memory, "was not made by npu_sparse_flash_mla_metadata, or overwritten"),
    ],
)
def test_metadata_that_is_not_of_this_step_fails_by_name(
    npu: Any, spoil: Any, message: str
) -> None:
    call = draw(**PLAIN, ratio=2)
    lengths = call.lengths()
    metadata = call.metadata(lengths)
    spoil(call, metadata, lengths)
    call.attend(lengths, metadata)
    with pytest.raises(RuntimeError, match=message):
        npu.synchronize()


def test_a_step_without_rows_reads_no_metadata(npu: Any) -> None:
    call = draw(rows=[0, 0], keys=[5, 0], ratio=0, padding=2)
    call.attend(call.lengths(), torch.zeros(1024, dtype=torch.int32).to("npu"))
    npu.synchronize()


@pytest.mark.parametrize(
    ("rows", "keys", "changes", "message"),
    [
        ([1, 1], [3, -1], {}, r"seqused_ori_kv\[1\] is -1, expected 0 or more"),
        ([2, -1], [3, 1], {}, r"cu_seqlens_q\[2\] is 1, expected no less than the one before"),
        ([1, 1], [3, 9], {"cmp_residual_kv": [0, 2]}, r"cmp_residual_kv\[1\] is 2, expected 0 or"),
        ([1, 1], [3, 9], {"seqused_cmp_kv": [-1, 2]}, r"seqused_cmp_kv\[0\] is -1"),
    ],
)
def test_lengths_that_the_metadata_cannot_be_made_of_fail_by_name(
    npu: Any, rows: list[int], keys: list[int], changes: dict[str, list[int]], message: str
) -> None:
    call = replace(draw(rows=[1, 1], keys=[3, 9], ratio=2), rows=rows, keys=keys)
    given = {name: torch.tensor(v, dtype=torch.int32).to("npu") for name, v in changes.items()}
    call.metadata({**call.lengths(), **given})
    with pytest.raises(RuntimeError, match=message):
        npu.synchronize()


def test_a_key_in_no_block_fails_by_name(npu: Any) -> None:
    call = draw(rows=[1], keys=[5], ratio=0)
    call = replace(call, table=torch.full_like(call.table, len(call.caches[0])))
    lengths = call.lengths()
    call.attend(lengths, call.metadata(lengths))
    with pytest.raises(RuntimeError, match="position 0 of sequence 0 is in no block of ori_kv"):
        npu.synchronize()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": None}, r"expected 'metadata' \[1024\], found none"),
        ({"sinks": None}, r"expected 'sinks' \[2\], found none"),
        ({"seqused_ori_kv": None}, "expected 'seqused_ori_kv' on the device, found none"),
        ({"cmp_residual_kv": None}, "expected 'cmp_residual_kv' on the device, found none"),
        ({"cmp_kv": None}, "expected 'cmp_kv' and 'cmp_sparse_indices', found one"),
        ({"layout_kv": "TND"}, "expected 'layout_kv' to be 'PA_BBND', found 'TND'"),
        ({"ori_win_left": 63}, "expected 'ori_win_left' to be 127, found 63"),
        ({"cmp_ratio": 3}, "expected 'cmp_ratio' to be 1 or 2 or 4, found 3"),
        ({"return_softmax_lse": True}, "expected 'return_softmax_lse' to be False"),
        ({"cmp_sparse_indices": torch.zeros(5, 1, 64, dtype=torch.int32)}, "to be 512 or 1024"),
        ({"q": torch.zeros(5, 3, 512).bfloat16()}, "expected 'heads' to be 1 or 2 or 4"),
        ({"q": torch.zeros(5, 2, 512)}, "expected 'q' to be torch.bfloat16"),
        ({"ori_kv": torch.zeros(4, 24, 1, 512).bfloat16()}, "a multiple of 16 keys"),
        ({"cu_seqlens_q": torch.zeros(4).long()}, "expected 'cu_seqlens_q' to be torch.int32"),
    ],
)
def test_what_the_kernel_does_not_read_is_refused(
    npu: Any, changes: dict[str, Any], message: str
) -> None:
    call = draw(**PLAIN, ratio=2)
    lengths = call.lengths()
    given = {**call.arguments(), **lengths, "metadata": call.metadata(lengths)}
    given |= {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(ValueError, match=message):
        torch.ops._C_ascend.npu_sparse_flash_mla(**given)


def test_the_fakes_have_the_shapes_of_the_kernels(npu: Any) -> None:
    ends = torch.zeros(3, dtype=torch.int32, device="meta")
    query = torch.zeros(5, 2, 512, dtype=torch.bfloat16, device="meta")
    metadata = torch.ops._C_ascend.npu_sparse_flash_mla_metadata(2, 1, 512, cu_seqlens_q=ends)
    output, sums = torch.ops._C_ascend.npu_sparse_flash_mla(query, metadata=metadata)
    assert (metadata.shape, metadata.dtype) == ((1024,), torch.int32)
    assert (output.shape, output.dtype) == (query.shape, query.dtype)
    assert (sums.shape, sums.dtype) == ((0,), torch.float32)
