"""FIA of vllm-ascend with lengths on the device: bitwise as FIA v2 with those lengths on the host.

Also what it refuses of its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch
import torch_npu

import cann_sim
from cann_sim.engine_kernels.vllm_ascend_fused_infer import register

BLOCK, COLUMNS, SCALE, WORDS = 16, 4, 0.04, 1024
ATTENTION = "_C_ascend::npu_fused_infer_attention_score_v2_sink"
METADATA = "_C_ascend::_npu_fused_infer_attention_score_v2_sink_metadata"


@pytest.fixture(autouse=True)
def operators(npu: Any) -> None:
    register()
    register()


@dataclass(frozen=True, kw_only=True)
class Step:
    """Inputs of one step, on the CPU except for the tensors, which are on the device."""

    rows: list[int]
    keys: list[int]
    tensors: dict[str, torch.Tensor]
    attributes: dict[str, Any]
    layout_of_pages: str

    def lengths(self) -> dict[str, torch.Tensor]:
        """Return what attention reads of lengths, on the device."""
        return {
            "actual_seq_qlen": torch.tensor(list(accumulate(self.rows))).to("npu"),
            "actual_seq_kvlen": torch.tensor(self.keys).to("npu"),
        }

    def metadata(self, lengths: dict[str, torch.Tensor], **changes: Any) -> torch.Tensor:
        """Launch what makes the metadata."""
        width = self.tensors["query"].shape[-1]
        attributes = dict(self.attributes)
        heads = (attributes.pop("num_query_heads"), attributes.pop("num_key_value_heads"))
        attributes.pop("softmax_scale")
        given = {
            "actual_seq_lengths": lengths["actual_seq_qlen"],
            "actual_seq_lengths_kv": lengths["actual_seq_kvlen"],
            "batch_size": len(self.rows),
            "input_layout_kv": self.layout_of_pages,
            "rope_head_dim": 64 if "query_rope" in self.tensors else 0,
            "aic_core_num": 24,
            "aiv_core_num": 48,
            **attributes,
            **changes,
        }
        made: torch.Tensor = torch.ops._C_ascend._npu_fused_infer_attention_score_v2_sink_metadata(
            *heads, width, width, **given
        )
        return made

    def attend(
        self, lengths: dict[str, torch.Tensor], metadata: torch.Tensor | None, **changes: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch the attention."""
        given = {**self.tensors, **lengths, "meta_data": metadata, **self.attributes, **changes}
        found: tuple[torch.Tensor, torch.Tensor] = (
            torch.ops._C_ascend.npu_fused_infer_attention_score_v2_sink(**given)
        )
        return found

    def expected(self, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what FIA v2 gives with these lengths on the host."""
        given = {**self.tensors, **self.attributes, **changes}
        found: tuple[torch.Tensor, torch.Tensor] = torch_npu.npu_fused_infer_attention_score_v2(
            **given, actual_seq_qlen=list(accumulate(self.rows)), actual_seq_kvlen=self.keys
        )
        return found


def draw(
    *,
    rows: list[int],
    keys: list[int],
    kind: str = "grouped",
    dtype: torch.dtype = torch.bfloat16,
    mode: int = 0,
    padding: int = 0,
) -> Step:
    torch.manual_seed(0)
    latent = kind.startswith("latent")
    width, heads, kv_heads = (512, 4, 1) if latent else (64, 4, 2)
    tokens, blocks = sum(rows) + padding, 1 + len(rows) * COLUMNS

    def pages(dim: int) -> torch.Tensor:
        shape = (
            (blocks, BLOCK, kv_heads * dim) if kind == "packed" else (blocks, kv_heads, BLOCK, dim)
        )
        return torch.randn(shape).to(dtype).to("npu")

    key = pages(width)
    tensors = {
        "query": torch.randn(tokens, heads, width).to(dtype).to("npu"),
        "key": key,
        "value": key if latent else pages(width),
        "block_table": torch.randperm(blocks)[1:].reshape(len(rows), -1).int().to("npu"),
    }
    if latent:
        rope = torch.randn(tokens, heads, 64).to(dtype).to("npu")
        tensors |= {"query_rope": rope, "key_rope": pages(64)}
    if mode:
        mask = torch.triu(torch.ones(2048, 2048), diagonal=1).to(torch.int8)
        tensors["atten_mask"] = mask.to("npu")
    return Step(
        rows=rows,
        keys=keys,
        tensors=tensors,
        attributes={
            "num_query_heads": heads,
            "num_key_value_heads": kv_heads,
            "softmax_scale": SCALE,
            "input_layout": "TND_NTD" if kind == "latent_turned" else "TND",
            "sparse_mode": mode,
            "block_size": BLOCK,
            **({"pre_tokens": 7, "next_tokens": 0} if mode == 4 else {}),
        },
        layout_of_pages={"packed": "BnBsH", "latent_turned": "BnNBsD"}.get(kind, "PA"),
    )


PLAIN: dict[str, Any] = {"rows": [1, 3, 1], "keys": [5, 64, 20]}


@pytest.mark.parametrize("mode", [0, 3, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kind": "packed", "dtype": torch.float16},
        {"kind": "latent", "padding": 3},
        {"kind": "latent_turned", "rows": [20, 0], "keys": [30, 0]},
    ],
)
def test_values_are_those_of_lengths_on_the_host(
    npu: Any, mode: int, changes: dict[str, Any]
) -> None:
    step = draw(**{**PLAIN, **changes, "mode": mode})
    lengths = step.lengths()
    before = cann_sim.counters()
    found = step.attend(lengths, step.metadata(lengths), return_softmax_lse=True)
    npu.synchronize()
    counted = (cann_sim.counters() - before).launches_by_operator
    assert {name: count for name, count in counted.items() if "nfer" in name} == {
        ATTENTION: 1,
        METADATA: 1,
    }
    expected = step.expected(return_softmax_lse=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert torch.equal(ours.cpu(), theirs.cpu())
    assert torch.equal(step.attend(lengths, step.metadata(lengths))[0].cpu(), expected[0].cpu())


@pytest.mark.parametrize("kind", ["grouped", "latent"])
def test_a_replay_reads_the_lengths_and_the_metadata_anew(npu: Any, kind: str) -> None:
    step = draw(**PLAIN, kind=kind, mode=3)
    lengths = step.lengths()
    metadata = step.metadata(lengths)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        found, _ = step.attend(lengths, metadata)
    before = cann_sim.counters()
    for rows, keys in (([1, 3, 1], [7, 63, 2]), ([2, 1, 2], [33, 1, 60]), ([0, 5, 0], [1, 5, 0])):
        changed = replace(step, rows=rows, keys=keys)
        for name, value in changed.lengths().items():
            lengths[name].copy_(value)
        metadata.copy_(changed.metadata(lengths))
        graph.replay()
        assert torch.equal(found.cpu(), changed.expected()[0].cpu())
    counted = cann_sim.counters() - before
    assert (counted.replays, counted.task_updates) == (3, 0)


def test_metadata_is_not_captured(npu: Any) -> None:
    step = draw(**PLAIN)
    lengths = step.lengths()
    metadata = step.metadata(lengths)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        with pytest.raises(RuntimeError, match="expected a stream that is not captured"):
            step.metadata(lengths)
        found, _ = step.attend(lengths, metadata)
    graph.replay()
    assert torch.equal(found.cpu(), step.expected()[0].cpu())


def test_a_replay_without_metadata_of_its_lengths_fails_by_name(npu: Any) -> None:
    step = draw(**PLAIN, mode=3)
    lengths = step.lengths()
    metadata = step.metadata(lengths)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        step.attend(lengths, metadata)
    lengths["actual_seq_kvlen"].sub_(1)
    graph.replay()
    with pytest.raises(RuntimeError, match=f"{ATTENTION}: its metadata was made for other lengths"):
        npu.synchronize()


def test_the_split_ends_behind_the_last_head(npu: Any) -> None:
    step = draw(rows=[2, 0, 5], keys=[8, 3, 30])
    made = step.metadata(step.lengths(), aic_core_num=3, batch_size=0).cpu()
    cores = made[:360].reshape(36, 10)
    used = cores[cores[:, 0] == 1]
    assert len(used) == made[580] == 3
    ends = [head * 5 + row for head, row in used[:, 1:3].tolist()]
    assert ends == sorted(set(ends))
    assert used[-1, 1:3].tolist() == [3 * 2, 0]


def _stale(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    lengths["actual_seq_kvlen"].add_(1)


def _of_other_rows(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    lengths["actual_seq_qlen"][0] = 2


def _empty(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    metadata.zero_()


def _overwritten(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    metadata[:512].fill_(1)


def _of_another_mode(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    metadata.copy_(step.metadata(lengths, sparse_mode=3))


def _of_other_memory(step: Step, metadata: torch.Tensor, lengths: dict[str, torch.Tensor]) -> None:
    metadata.fill_(7)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_stale, "was made for other lengths; run _npu_fused_infer_attention_score_v2_sink_meta"),
        (_of_other_rows, "its metadata was made for other lengths"),
        (_empty, "its metadata is empty"),
        (_overwritten, "its metadata was overwritten after it was made"),
        (_of_another_mode, "made for other sequences, heads, head dimensions, sparse_mode"),
        (_of_other_memory, "was not made by _npu_fused_infer_attention_score_v2_sink_metadata, or"),
    ],
)
def test_metadata_that_is_not_of_this_step_fails_by_name(
    npu: Any, spoil: Any, message: str
) -> None:
    step = draw(**PLAIN)
    lengths = step.lengths()
    metadata = step.metadata(lengths)
    spoil(step, metadata, lengths)
    step.attend(lengths, metadata)
    with pytest.raises(RuntimeError, match=message):
        npu.synchronize()


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([1, 1], [3, -1], r"actual_seq_lengths_kv\[1\] is -1, expected 0 or more"),
        ([2, -1], [3, 1], r"actual_seq_lengths\[1\] is 1, expected no less than the one before"),
        ([-1, 2], [3, 1], r"actual_seq_lengths\[0\] is -1, expected 0 or more"),
    ],
)
def test_lengths_that_the_metadata_cannot_be_made_of_fail_by_name(
    npu: Any, rows: list[int], keys: list[int], message: str
) -> None:
    step = replace(draw(rows=[1, 1], keys=[3, 9]), rows=rows, keys=keys)
    step.metadata(step.lengths())
    with pytest.raises(RuntimeError, match=message):
        npu.synchronize()


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([1, 2], [3, 9], "'actualSeqLengths': expected running totals .* end at most at 2"),
        ([1, 1], [3, 65], r"'actualSeqLengthsKv': expected entry 1 in \[0, 64\], found 65"),
    ],
)
def test_lengths_that_the_tensors_do_not_have_fail_when_the_kernel_runs(
    npu: Any, rows: list[int], keys: list[int], message: str
) -> None:
    step = replace(draw(rows=[1, 1], keys=[3, 9]), rows=rows, keys=keys)
    lengths = step.lengths()
    step.attend(lengths, step.metadata(lengths))
    with pytest.raises(RuntimeError, match=f"{ATTENTION}: .*{message}"):
        npu.synchronize()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta_data": None}, "expected 'meta_data' on the device, found none"),
        ({"block_table": None}, "expected 'block_table' on the device, found none"),
        ({"actual_seq_kvlen": None}, "expected 'actual_seq_kvlen' on the device, found none"),
        ({"actual_seq_qlen": torch.zeros(3).int()}, "'actual_seq_qlen' to be torch.int64"),
        ({"meta_data": torch.zeros(512).int()}, r"'meta_data' to be torch.int32 \[1024\]"),
        ({"input_layout": "TND_NTD"}, "expected 'input_layout' to be 'TND', found 'TND_NTD'"),
        ({"sparse_mode": 2}, "expected 'sparse_mode' to be 0 or 3 or 4, found 2"),
        ({"query": torch.zeros(5, 4, 256).bfloat16()}, "'head dimension' to be 64 or 128 or 192"),
        ({"query": torch.zeros(5, 4, 64)}, "'dtype of query' to be torch.bfloat16"),
        ({"query_rope": torch.zeros(5, 4, 64).bfloat16()}, "'dimension of the rotary parts' to be"),
        ({"key": torch.zeros(13, 2, 4, 16, 16).bfloat16()}, "dimensions of 'key'"),
        ({"atten_mask": torch.zeros(4).double()}, "'mask' of at most 4 dimensions and of a dtype"),
    ],
)
def test_what_the_kernel_does_not_read_is_refused(
    npu: Any, changes: dict[str, Any], message: str
) -> None:
    step = draw(**PLAIN)
    lengths = step.lengths()
    metadata = step.metadata(lengths)
    given = {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(ValueError, match=message):
        step.attend(lengths, metadata, **given)


def test_what_the_operator_of_the_device_refuses_fails_at_the_launch(npu: Any) -> None:
    step = draw(**PLAIN)
    lengths = step.lengths()
    with pytest.raises(RuntimeError, match="'attenMask': expected a value for sparse mode 3"):
        step.attend(lengths, step.metadata(lengths), sparse_mode=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_layout_kv": "TND"}, "expected 'input_layout_kv' to be 'PA' or 'BnBsH' or 'BnNB"),
        ({"sink_num": 1}, "expected 'sink_num' to be 0, found 1"),
        ({"k_sink_num": 1}, "expected 'k_sink_num' to be 0, found 1"),
        ({"batch_size": 2}, "expected 'batch_size' to be 0 or 3, found 2"),
        ({"aic_core_num": 37}, r"expected 'aic_core_num' in \[1, 36\], found 37"),
    ],
)
def test_what_the_metadata_does_not_know_is_refused(
    npu: Any, changes: dict[str, Any], message: str
) -> None:
    step = draw(**PLAIN)
    with pytest.raises(ValueError, match=message):
        step.metadata(step.lengths(), **changes)


def test_the_fakes_have_the_shapes_of_the_kernels(npu: Any) -> None:
    step = draw(**PLAIN, kind="latent_turned")
    meta = replace(step, tensors={name: value.to("meta") for name, value in step.tensors.items()})
    lengths = {name: value.to("meta") for name, value in step.lengths().items()}
    metadata = meta.metadata(lengths)
    assert (metadata.shape, metadata.dtype) == ((WORDS,), torch.int32)
    for wanted in (False, True):
        shapes = [value.shape for value in step.expected(return_softmax_lse=wanted)]
        found = meta.attend(lengths, metadata, return_softmax_lse=wanted)
        assert [value.shape for value in found] == shapes
        assert [value.dtype for value in found] == [torch.bfloat16, torch.float32]
