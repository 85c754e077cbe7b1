"""Fused infer attention against a plain attention in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import random

Hidden = Callable[[int, int], torch.Tensor]

HALVES = [torch.bfloat16, torch.float16]
HEADS, KV_HEADS, DIM, BLOCK = 8, 2, 128, 128
CAUSAL = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), 1)
INFINITE = 2147483647


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, hidden: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sequence, row by row and head by head.

    query [S, N, D], key and value [K, KV_N, D]; hidden bool [S, K].
    """
    length, heads, _ = query.shape
    output = torch.zeros(length, heads, value.shape[-1], dtype=torch.float64)
    lse = torch.full((length, heads), math.inf, dtype=torch.float64)
    group = heads // key.shape[1]
    for position in range(length):
        seen = ~hidden[position]
        if not seen.any():
            continue
        for head in range(heads):
            own = key[seen, head // group].double()
            scores = own @ query[position, head].double() * scale
            output[position, head] = scores.softmax(0) @ value[seen, head // group].double()
            lse[position, head] = scores.logsumexp(0)
    return output, lse


def nothing_hidden(length: int, keys: int) -> torch.Tensor:
    return torch.zeros(length, keys, dtype=torch.bool)


def hidden_ahead(length: int, keys: int, *, shift: int | None = None) -> torch.Tensor:
    """Keys after the query's own position; the ends of both sequences coincide."""
    shift = keys - length if shift is None else shift
    return torch.arange(keys)[None] > torch.arange(length)[:, None] + shift


@dataclass
class Paged:
    """A ragged batch over paged keys and values, in the packed layout."""

    query_lengths: list[int]
    key_lengths: list[int]
    dtype: torch.dtype = torch.bfloat16
    heads: int = HEADS
    kv_heads: int = KV_HEADS
    dim: int = DIM
    block: int = BLOCK
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        batch = len(self.key_lengths)
        width = max(1, *(math.ceil(n / self.block) for n in self.key_lengths))
        blocks = batch * width + 1
        self.scale = 1 / math.sqrt(self.dim)
        self.query = random(sum(self.query_lengths), self.heads, self.dim, seed=1, dtype=self.dtype)
        self.key = random(blocks, self.block, self.kv_heads * self.dim, seed=2, dtype=self.dtype)
        self.value = random(blocks, self.block, self.kv_heads * self.dim, seed=3, dtype=self.dtype)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(4))
        self.table = order[: batch * width].view(batch, width).int()

    @property
    def totals(self) -> list[int]:
        return torch.tensor(self.query_lengths).cumsum(0).tolist()

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {
            "block_table": self.table.to("npu"),
            "block_size": self.block,
            "actual_seq_lengths": self.totals,
            "actual_seq_lengths_kv": self.key_lengths,
            "num_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "scale": self.scale,
            "input_layout": "TND",
            "sparse_mode": 3,
            "atten_mask": CAUSAL.to("npu"),
            **changes,
        }

    def keys(self, cache: torch.Tensor, index: int) -> torch.Tensor:
        rows = cache[self.table[index].long()].reshape(-1, self.kv_heads, self.dim)
        return rows[: self.key_lengths[index]]

    def reference(self, hidden: Hidden = hidden_ahead) -> tuple[torch.Tensor, torch.Tensor]:
        results = []
        queries = torch.split(self.query, self.query_lengths)
        for index, query in enumerate(queries):
            key, value = self.keys(self.key, index), self.keys(self.value, index)
            results.append(attend(query, key, value, self.scale, hidden(len(query), len(key))))
        outputs, lse = zip(*results, strict=True)
        return torch.cat(outputs), torch.cat(lse)


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor, keys: int) -> None:
    # Scores, weights and their sums in float32: an error of some units a key, of values below 5.
    conformance.close(result.cpu(), reference, ulps=16 + keys, magnitude=torch.tensor(5.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("query_lengths", "key_lengths"),
    [
        ([1, 1, 1], [5, 128, 300]),
        ([4, 1, 7], [4, 200, 129]),
        ([130], [130]),
        ([2, 0, 3], [256, 0, 3]),
        ([1], [1]),
    ],
)
def test_packed_layout_over_pages_equals_reference(
    conformance: Any, dtype: torch.dtype, query_lengths: list[int], key_lengths: list[int]
) -> None:
    batch = Paged(query_lengths, key_lengths, dtype=dtype)
    output, lse = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.value.to("npu"),
        softmax_lse_flag=True,
        **batch.arguments(),
    )
    expected, expected_lse = batch.reference()
    close(conformance, output, expected, max(key_lengths))
    assert lse.shape == (sum(query_lengths), HEADS, 1)
    close(conformance, lse.squeeze(-1), expected_lse, max(key_lengths))


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 1), (32, 8)])
def test_grouped_heads_share_their_keys(conformance: Any, heads: int, kv_heads: int) -> None:
    batch = Paged([2, 3], [10, 140], heads=heads, kv_heads=kv_heads)
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **batch.arguments()
    )
    close(conformance, output, batch.reference()[0], 140)


@pytest.mark.parametrize("block", [16, 64, 256])
def test_block_size_decides_the_pages(conformance: Any, block: int) -> None:
    batch = Paged([1, 2], [37, 300], block=block)
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **batch.arguments()
    )
    close(conformance, output, batch.reference()[0], 300)


def test_heads_before_tokens_in_the_pages(conformance: Any) -> None:
    batch = Paged([1, 4], [37, 300])

    def by_head(cache: torch.Tensor) -> torch.Tensor:
        return cache.view(-1, BLOCK, KV_HEADS, DIM).transpose(1, 2).contiguous().to("npu")

    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), by_head(batch.key), by_head(batch.value), **batch.arguments()
    )
    close(conformance, output, batch.reference()[0], 300)


@pytest.mark.parametrize("dtype", HALVES)
def test_batch_layout_decodes_over_pages(conformance: Any, dtype: torch.dtype) -> None:
    batch = Paged([1, 1, 1], [5, 0, 300], dtype=dtype)
    for layout, shape in (
        ("BSH", (3, 1, HEADS * DIM)),
        ("BSND", (3, 1, HEADS, DIM)),
        ("BNSD", (3, HEADS, 1, DIM)),
    ):
        arguments = batch.arguments(
            input_layout=layout, sparse_mode=0, atten_mask=None, actual_seq_lengths=None
        )
        output, _ = torch_npu.npu_fused_infer_attention_score(
            batch.query.view(shape).to("npu"),
            batch.key.to("npu"),
            batch.value.to("npu"),
            **arguments,
        )
        assert output.shape == shape
        close(conformance, output.view(3, HEADS, DIM), batch.reference(nothing_hidden)[0], 300)


LAYOUTS = [
    "BSH",
    "BSND",
    "BNSD",
    "BNSD_BSND",
    "BSH_BNSD",
    "BSND_BNSD",
    "BSH_NBSD",
    "BSND_NBSD",
    "BNSD_NBSD",
]


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return [B, S, N, D] in another layout."""
    if layout == "BSH":
        return tensor.flatten(2)
    orders = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "NBSD": (2, 0, 1, 3)}
    return tensor.permute(orders[layout]).contiguous()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
def test_batch_layouts_prefill_with_ragged_lengths(
    conformance: Any, dtype: torch.dtype, layout: str, causal: bool
) -> None:
    own, lengths = 6, [6, 2, 4]
    query = random(3, own, HEADS, DIM, seed=1, dtype=dtype)
    key = random(3, own, KV_HEADS, DIM, seed=2, dtype=dtype)
    value = random(3, own, KV_HEADS, DIM, seed=3, dtype=dtype)
    inside, _, outside = layout.partition("_")
    mask = {"sparse_mode": 2, "atten_mask": CAUSAL.bool().to("npu")} if causal else {}
    output, lse = torch_npu.npu_fused_infer_attention_score(
        *(laid_out(tensor, inside).to("npu") for tensor in (query, key, value)),
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=lengths,
        num_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        scale=0.1,
        input_layout=layout,
        softmax_lse_flag=True,
        **mask,
    )
    expected = torch.zeros(3, own, HEADS, DIM, dtype=torch.float64)
    expected_lse = torch.zeros(3, HEADS, own, 1, dtype=torch.float64)
    for index, length in enumerate(lengths):
        hidden = hidden_ahead(length, length) if causal else nothing_hidden(length, length)
        result = attend(
            query[index, :length], key[index, :length], value[index, :length], 0.1, hidden
        )
        expected[index, :length] = result[0]
        expected_lse[index, :, :length, 0] = result[1].t()
        close(conformance, lse[index, :, :length], expected_lse[index, :, :length], own)
    close(conformance, output, laid_out(expected, outside or inside), own)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8])
def test_whole_mask_masks_single_keys(conformance: Any, dtype: torch.dtype) -> None:
    own, keys = 5, 9
    query = random(2, own, HEADS, DIM, seed=1, dtype=torch.bfloat16)
    key, value = (random(2, keys, KV_HEADS, DIM, seed=s, dtype=torch.bfloat16) for s in (2, 3))
    mask = torch.rand(2, 1, own, keys, generator=torch.Generator().manual_seed(7)).gt(0.6)
    mask[0, 0, 3] = True
    output, _ = torch_npu.npu_fused_infer_attention_score(
        *(t.to("npu") for t in (query, key, value)),
        atten_mask=mask.to(dtype).to("npu"),
        num_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        scale=0.1,
        input_layout="BSND",
    )
    expected = [attend(query[i], key[i], value[i], 0.1, mask[i, 0])[0] for i in range(2)]
    close(conformance, output, torch.stack(expected), keys)
    assert output[0, 3].eq(0).all().item()


@pytest.mark.parametrize(("pre", "following"), [(3, 2), (INFINITE, 0), (0, 0), (4, INFINITE)])
def test_band_is_anchored_at_the_end(conformance: Any, pre: int, following: int) -> None:
    batch = Paged([6, 3], [20, 3])
    arguments = batch.arguments(sparse_mode=4, pre_tokens=pre, next_tokens=following)
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **arguments
    )

    def band(length: int, keys: int) -> torch.Tensor:
        distance = torch.arange(keys)[None] - (torch.arange(length)[:, None] + keys - length)
        return (distance > following) | (distance < -pre)

    close(conformance, output, batch.reference(band)[0], 20)


def test_more_queries_than_keys_leave_zeros(conformance: Any) -> None:
    batch = Paged([6], [2])
    output, lse = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.value.to("npu"),
        softmax_lse_flag=True,
        **batch.arguments(),
    )
    expected, expected_lse = batch.reference()
    assert expected[:4].eq(0).all()
    close(conformance, output, expected, 2)
    assert torch.equal(lse.squeeze(-1).isinf().cpu(), expected_lse.isinf())


def test_packed_layout_without_pages_reads_cumulative_key_lengths(conformance: Any) -> None:
    queries, keys = [2, 5], [7, 5]
    query = random(7, HEADS, DIM, seed=1, dtype=torch.bfloat16)
    key, value = (random(12, KV_HEADS, DIM, seed=s, dtype=torch.bfloat16) for s in (2, 3))
    output, _ = torch_npu.npu_fused_infer_attention_score(
        *(t.to("npu") for t in (query, key, value)),
        actual_seq_lengths=[2, 7],
        actual_seq_lengths_kv=[7, 12],
        num_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        scale=0.1,
        input_layout="TND",
        sparse_mode=3,
        atten_mask=CAUSAL.to("npu"),
    )
    parts = zip(
        torch.split(query, queries), torch.split(key, keys), torch.split(value, keys), strict=True
    )
    expected = torch.cat(
        [attend(q, k, v, 0.1, hidden_ahead(len(q), len(k)))[0] for q, k, v in parts]
    )
    close(conformance, output, expected, 12)


@settings(max_examples=15)
@given(data=st.data())
def test_any_ragged_batch_equals_reference(conformance: Any, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    queries = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    keys = [q + data.draw(st.integers(0, 150)) for q in queries]
    if not sum(queries):
        queries[0], keys[0] = 1, keys[0] + 1
    batch = Paged(queries, keys, block=data.draw(st.sampled_from([16, 128])))
    output, _ = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **batch.arguments()
    )
    close(conformance, output, batch.reference()[0], max(keys))


def test_sequences_do_not_depend_on_their_batch() -> None:
    batch = Paged([1, 1, 1, 1], [100, 7, 260, 31])
    whole = torch_npu.npu_fused_infer_attention_score(
        batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **batch.arguments()
    )[0].cpu()
    for index in range(4):
        alone = torch_npu.npu_fused_infer_attention_score(
            batch.query[index : index + 1].to("npu"),
            batch.key.to("npu"),
            batch.value.to("npu"),
            **batch.arguments(
                block_table=batch.table[index : index + 1].to("npu"),
                actual_seq_lengths=[1],
                actual_seq_lengths_kv=[batch.key_lengths[index]],
            ),
        )[0].cpu()
        assert torch.equal(alone[0], whole[index])


@pytest.mark.parametrize("layout", ["TND", "BSH", "BNSD"])
def test_a_query_of_other_strides_is_made_contiguous(layout: str) -> None:
    # As an engine splits it off: the part of a projection that is not rotated.
    batch = Paged([1, 1], [100, 7])
    shape = {"TND": (2, HEADS, DIM), "BSH": (2, 1, HEADS * DIM), "BNSD": (2, HEADS, 1, DIM)}[layout]
    query = torch.nn.functional.pad(batch.query.view(shape), (0, 64)).to("npu")[..., : shape[-1]]
    assert not query.is_contiguous()
    arguments = batch.arguments(input_layout=layout)
    if layout != "TND":
        arguments |= {"actual_seq_lengths": [1, 1], "sparse_mode": 0, "atten_mask": None}
    found, expected = (
        torch_npu.npu_fused_infer_attention_score(
            each, batch.key.to("npu"), batch.value.to("npu"), **arguments
        )[0].cpu()
        for each in (query, query.contiguous())
    )
    assert torch.equal(found, expected)


def test_out_overload_with_workspace_gives_the_same_bits() -> None:
    batch = Paged([1, 4], [37, 300])
    inputs = (batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"))
    expected, _ = torch_npu.npu_fused_infer_attention_score(*inputs, **batch.arguments())
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        *inputs, **batch.arguments()
    )
    out, lse = torch.empty_like(expected), torch.empty(1, dtype=batch.query.dtype, device="npu")
    torch_npu.npu_fused_infer_attention_score.out(
        *inputs, workspace=workspace, out=[out, lse], **batch.arguments()
    )
    assert torch.equal(out.cpu(), expected.cpu())


def test_second_version_takes_sinks(conformance: Any) -> None:
    batch = Paged([2, 1], [40, 9])
    sink = random(HEADS, seed=8, dtype=torch.bfloat16)
    output, lse = torch_npu.npu_fused_infer_attention_score_v2(
        batch.query.to("npu"),
        batch.key.to("npu"),
        batch.value.to("npu"),
        atten_mask=CAUSAL.to("npu"),
        actual_seq_qlen=batch.totals,
        actual_seq_kvlen=batch.key_lengths,
        block_table=batch.table.to("npu"),
        block_size=BLOCK,
        num_query_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        softmax_scale=batch.scale,
        input_layout="TND",
        sparse_mode=3,
        learnable_sink=sink.to("npu"),
        return_softmax_lse=True,
    )
    plain, plain_lse = batch.reference()
    with_sink = torch.logaddexp(plain_lse, sink.double())
    close(conformance, output, plain * (plain_lse - with_sink).exp().unsqueeze(-1), 40)
    close(conformance, lse.squeeze(-1), with_sink, 40)


@pytest.mark.parametrize("fused_call", [False, True])
def test_task_update_gives_a_captured_graph_new_lengths(conformance: Any, fused_call: bool) -> None:
    batch = Paged([1, 1], [17, 200])
    inputs = (batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"))
    arguments = batch.arguments()
    out = torch.zeros_like(inputs[0])
    lse = torch.empty(1, dtype=torch.float32, device="npu")
    arguments["workspace"] = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        *inputs, **arguments
    )

    def call(lengths: list[int]) -> None:
        torch_npu.npu_fused_infer_attention_score.out(
            *inputs, out=[out, lse], **{**arguments, "actual_seq_lengths_kv": lengths}
        )

    graph, event, update_stream = (
        torch_npu.npu.NPUGraph(),
        torch_npu.npu.ExternalEvent(),
        torch_npu.npu.Stream(),
    )
    with torch_npu.npu.graph(graph):
        stream = torch_npu.npu.current_stream()
        event.wait(stream)
        event.reset(stream)
        torch_npu.npu.graph_task_group_begin(stream)
        call([17, 200])
        handle = torch_npu.npu.graph_task_group_end(stream)
    for lengths in ([17, 200], [18, 201], [1, 256], [0, 3]):
        graph.replay()
        with torch_npu.npu.stream(update_stream):
            if fused_call:
                torch_npu._C._npu_fused_infer_attention_score_out_graph(
                    update_stream,
                    handle,
                    event,
                    query=inputs[0],
                    key=inputs[1],
                    value=inputs[2],
                    out=[out, lse],
                    **{**arguments, "actual_seq_lengths_kv": lengths},
                )
            else:
                torch_npu.npu.graph_task_update_begin(update_stream, handle)
                call(lengths)
                torch_npu.npu.graph_task_update_end(update_stream)
                event.record(update_stream)
        torch_npu.npu.synchronize()
        batch.key_lengths = lengths
        close(conformance, out, batch.reference()[0], 256)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "float32 query": ({"query": torch.float32}, "argument 'query': expected one of the dtypes"),
    "mixed dtypes": ({"key": torch.float16}, "argument 'key': expected bfloat16"),
    "no key lengths": ({"actual_seq_lengths_kv": None}, "argument 'actualSeqLengthsKv'"),
    "falling totals": ({"actual_seq_lengths": [3, 2]}, "running totals that never fall"),
    "totals past the end": ({"actual_seq_lengths": [1, 9]}, "running totals that never fall"),
    "other number of lengths": ({"actual_seq_lengths_kv": [5]}, "expected 2 entries"),
    "length past the pages": ({"actual_seq_lengths_kv": [5, 999]}, "entry 1 in"),
    "block size 100": ({"block_size": 100}, "argument 'blockSize'"),
    "block size of another cache": ({"block_size": 64}, "argument 'key'"),
    "heads not divisible": ({"num_key_value_heads": 3}, "a divisor of the 8 query heads"),
    "heads of another query": (
        {"num_heads": 4, "num_key_value_heads": 2},
        "argument 'query': expected 4 heads",
    ),
    "sparse mode 5": ({"sparse_mode": 5}, "argument 'sparseMode'"),
    "causal without mask": ({"atten_mask": None}, "argument 'attenMask'"),
    "small compressed mask": (
        {"atten_mask": torch.ones(16, 16, dtype=torch.int8)},
        "the compressed mask",
    ),
    "float mask": (
        {"atten_mask": torch.ones(2048, 2048)},
        "argument 'attenMask': expected one of the dtypes",
    ),
    "int64 table": (
        {"block_table": torch.int64},
        "argument 'blockTable': expected one of the dtypes int32",
    ),
    "quantised output": (
        {"quant_scale2": torch.ones(1)},
        "argument 'quantScale2': expected 1 or 1024 elements, in a layout with a batch dimension",
    ),
    "position shift": (
        {"pse_shift": torch.ones(1, 8, 1, 64).bfloat16()},
        "argument 'pseShift': expected none in a packed layout",
    ),
    "one rotary part": (
        {"query_rope": torch.ones(2, 8, 64).bfloat16()},
        "expected both rotary parts or none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_argument_is_named(case: str) -> None:
    changes, message = REFUSED[case]
    batch = Paged([1, 1], [17, 100])
    inputs = {"query": batch.query, "key": batch.key, "value": batch.value}
    arguments = batch.arguments()
    for name, value in changes.items():
        if isinstance(value, torch.dtype):
            before = inputs.get(name, batch.table)
            (inputs if name in inputs else arguments)[name] = before.to(value)
        else:
            arguments[name] = value
    moved = {
        k: v.to("npu") if isinstance(v, torch.Tensor) else v
        for k, v in {**inputs, **arguments}.items()
    }
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_fused_infer_attention_score(**moved)


def test_table_that_names_no_block_is_reported() -> None:
    batch = Paged([1], [17])
    arguments = batch.arguments(block_table=(batch.table + 1000).to("npu"))
    with pytest.raises(RuntimeError, match="507015"):
        torch_npu.npu_fused_infer_attention_score(
            batch.query.to("npu"), batch.key.to("npu"), batch.value.to("npu"), **arguments
        )[0].cpu()
