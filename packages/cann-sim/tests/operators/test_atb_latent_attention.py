"""Latent attention of ATB (MLA): decode over pages and rings of prefill, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random
from operators.paged_batch import PagedBatch, attend, causal, close, pieces

HALVES = [torch.bfloat16, torch.float16]
LATENT, ROPE = 64, 32


def latent_batch(keys: list[int], queries: list[int] | None, dtype: torch.dtype) -> PagedBatch:
    batch = PagedBatch(keys, queries, dtype, heads=4, kv_heads=1, dim=LATENT + ROPE)
    batch.value, batch.value_dim = batch.key[..., :LATENT], LATENT
    return batch


def split(batch: PagedBatch) -> tuple[torch.Tensor, ...]:
    parts = [p for t in (batch.query, batch.key) for p in pieces(t, [LATENT, ROPE], -1)]
    return tuple(t.contiguous().to("npu") for t in [*parts, batch.table])


@pytest.mark.parametrize("dtype", HALVES)
def test_decode_attends_to_latent_pages(conformance: Any, dtype: torch.dtype) -> None:
    batch = latent_batch([1, 16, 50], None, dtype)
    out = torch_npu.atb.npu_multi_head_latent_attention(
        *split(batch), batch.key_lengths, 4, batch.scale, 1
    )
    close(conformance, out, batch.reference()[0], 50)


@pytest.mark.parametrize("dtype", HALVES)
def test_decode_of_a_ring_gives_the_log_sum_exp(conformance: Any, dtype: torch.dtype) -> None:
    batch = latent_batch([1, 16, 50], None, dtype)
    out, logarithms = torch_npu.atb.npu_multi_head_latent_attention(
        *split(batch), batch.key_lengths, 4, batch.scale, 1, True, calc_type="calc_type_ring"
    )
    expected, expected_logarithms = batch.reference()
    close(conformance, out, expected, 50)
    close(conformance, logarithms, expected_logarithms.unsqueeze(-1), 50)


def test_several_queries_a_sequence_see_what_their_mask_shows(conformance: Any) -> None:
    batch = latent_batch([20, 4], [3, 2], torch.float16)
    masks = [causal(3, 20).clamp_min(-10000), causal(2, 4).clamp_min(-10000)]
    mask = torch.cat([torch.nn.functional.pad(m, (0, 20 - m.shape[1])) for m in masks])
    out = torch_npu.atb.npu_multi_head_latent_attention(
        *split(batch),
        batch.key_lengths,
        4,
        batch.scale,
        1,
        mask=mask.half().to("npu"),
        qseqlen=[3, 2],
        mask_type="mask_type_spec",
        calc_type="calc_type_spec",
    )
    close(conformance, out, batch.reference(biases=masks)[0], 20)


def test_captured_decode_follows_the_lengths_of_its_updates(npu: Any, conformance: Any) -> None:
    batch = latent_batch([64, 64], None, torch.bfloat16)
    inputs = split(batch)
    out = torch.zeros(2, 4, LATENT, dtype=torch.bfloat16).to("npu")
    logarithms = torch.zeros(2, 4, 1, dtype=torch.bfloat16).to("npu")
    ring = {"calc_type": "calc_type_ring"}
    ask = torch_npu.atb._npu_multi_head_latent_attention_get_workspace
    workspace = ask(*inputs, [64, 64], 4, batch.scale, 1, True, **ring)

    def launch(lengths: list[int]) -> None:
        torch_npu.atb.npu_multi_head_latent_attention(
            *inputs,
            lengths,
            4,
            batch.scale,
            1,
            True,
            workspace=workspace,
            output=out,
            lse=logarithms,
            **ring,
        )

    event, graph, updates = npu.ExternalEvent(), npu.NPUGraph(), npu.Stream()
    with npu.graph(graph):
        main = npu.current_stream()
        event.wait(main)
        npu.graph_task_group_begin(main)
        launch([64, 64])
        handle = npu.graph_task_group_end(main)
    for lengths in ([1, 64], [17, 30]):
        graph.replay()
        with npu.stream(updates):
            npu.graph_task_update_begin(updates, handle)
            launch(lengths)
            npu.graph_task_update_end(updates)
            event.record(updates)
        npu.synchronize()
        expected, expected_logarithms = batch.reference(lengths)
        close(conformance, out, expected, 64)
        close(conformance, logarithms, expected_logarithms.unsqueeze(-1), 64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache_mode": "int8_nzcache"}, "'cache_mode': expected krope_ctkv"),
        ({"mask_type": "mask_type_spec"}, "'mask_type': expected undefined"),
        ({"qseqlen": [1, 1, 1]}, "'qseqlen': expected none"),
        ({"qk_descale": torch.ones(4)}, "an int8 cache"),
    ],
)
def test_decode_that_is_not_simulated_is_refused(
    npu: Any, changes: dict[str, Any], message: str
) -> None:
    batch = latent_batch([1, 16, 50], None, torch.float16)
    moved = {n: v.to("npu") if isinstance(v, torch.Tensor) else v for n, v in changes.items()}
    with (
        npu.stream(npu.SyncLaunchStream()),
        pytest.raises(RuntimeError, match=f"(?s)AtbMLA.*{message}"),
    ):
        torch_npu.atb.npu_multi_head_latent_attention(
            *split(batch), batch.key_lengths, 4, batch.scale, 1, **moved
        )


QUERIES, KEYS = [5, 12, 3], [5, 9, 0]


def ring(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    tokens, keys = sum(QUERIES), sum(KEYS)
    shapes = [(tokens, 4, 32), (tokens, 4, 16), (keys, 2, 32), (keys, 2, 16), (keys, 2, 24)]
    return tuple(random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes))


def ring_reference(
    inputs: tuple[torch.Tensor, ...], *, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    query = pieces(torch.cat(inputs[:2], -1), QUERIES)
    key = pieces(torch.cat(inputs[2:4], -1), KEYS)
    outputs, logarithms = [], []
    for own, keys, values in zip(query, key, pieces(inputs[4], KEYS), strict=True):
        # The mask of a ring is anchored at the first query and the first key.
        hidden = torch.triu(torch.ones(len(own), len(keys)), 1) * -1e30
        output, logarithm = attend(own, keys, values, 0.3, hidden if is_causal else None)
        outputs.append(output if len(keys) else torch.zeros_like(output))
        logarithms.append(logarithm if len(keys) else torch.zeros_like(logarithm))
    return torch.cat(outputs), torch.cat(logarithms).transpose(0, 1)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_first_ring_attends_to_its_part(
    conformance: Any, dtype: torch.dtype, is_causal: bool
) -> None:
    inputs = ring(dtype)
    mask = torch.triu(torch.ones(512, 512), 1).to(dtype).to("npu")
    output, logarithms = torch_npu.atb.npu_ring_mla(
        *(t.to("npu") for t in inputs),
        mask,
        torch.tensor([QUERIES, KEYS], dtype=torch.int32),
        4,
        2,
        qk_scale=0.3,
        mask_type="mask_type_triu" if is_causal else "no_mask",
    )
    expected, expected_logarithms = ring_reference(inputs, is_causal=is_causal)
    close(conformance, output, expected, 12)
    close(conformance, logarithms, expected_logarithms, 12)


def test_later_ring_is_merged_with_the_result_before(conformance: Any) -> None:
    inputs = ring(torch.float16)
    before = random(20, 4, 24, seed=7, dtype=torch.float16)
    logarithms_before = random(4, 20, seed=8, dtype=torch.float32)
    output, logarithms = torch_npu.atb.npu_ring_mla(
        *(t.to("npu") for t in inputs),
        torch.zeros(512, 512, dtype=torch.float16).to("npu"),
        torch.tensor([QUERIES, KEYS], dtype=torch.int32),
        4,
        2,
        pre_out=before.to("npu"),
        prev_lse=logarithms_before.to("npu"),
        qk_scale=0.3,
        calc_type="calc_type_default",
    )
    own, own_logarithms = ring_reference(inputs, is_causal=False)
    own_logarithms[:, sum(QUERIES[:2]) :] = -torch.inf  # without keys the result before stays
    together = torch.logaddexp(own_logarithms, logarithms_before.double())
    weights = [
        (t.double() - together).exp().T.unsqueeze(-1) for t in (own_logarithms, logarithms_before)
    ]
    close(conformance, output, own * weights[0] + before.double() * weights[1], 12)
    close(conformance, logarithms, together, 12)
