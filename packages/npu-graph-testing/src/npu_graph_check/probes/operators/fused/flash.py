"""FlashAttentionScore, the attention of training and of torch's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from npu_graph_check.probes.operators.agreement import drawn, expect_close, expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HEADS, _DIM, _LENGTH, _KEYS, _SCALE = 4, 32, 5, 7, 0.2
_SHARE = 4e-3
_ATTENTION = "npu_fusion_attention"


def statistics(look: Look) -> None:
    """Compare outputs, the largest scores and the sums, in two layouts."""
    query, key, value = _inputs()
    for layout in ("BNSD", "BSND"):

        def stored(tensor: torch.Tensor, layout: str = layout) -> torch.Tensor:
            return tensor if layout == "BNSD" else tensor.transpose(1, 2).contiguous()

        tensors = map(stored, (query, key, value))
        found = run(look, _ATTENTION, *tensors, _HEADS, layout, scale=_SCALE)
        scores = query.double() @ key.double().mT * _SCALE
        expected = scores.softmax(-1) @ value.double()
        expect_close(look, f"{layout}: output", found[0], stored(expected), _SHARE)
        largest = scores.amax(-1, keepdim=True)
        total = (scores - largest).exp().sum(-1, keepdim=True)
        for name, seen, wanted in (("largest", found[1], largest), ("sum", found[2], total)):
            look.expect(f"{layout}: dtype of the {name}", str(seen.dtype), "torch.float32")
            copies = wanted.expand(-1, -1, -1, 8)
            expect_close(look, f"{layout}: eight copies of the {name}", seen, copies, 1e-3)


def hidden_rows(look: Look) -> None:
    """Hide all keys of a row, and add a shift to the others."""
    given = query, key, value = _inputs()
    hidden = torch.zeros(1, 1, _LENGTH, _KEYS, dtype=torch.bool)
    hidden[..., 2, :] = True
    found = run(look, _ATTENTION, *given, _HEADS, "BNSD", scale=_SCALE, atten_mask=hidden)
    seen = found[0].cpu()
    expected = (query.double() @ key.double().mT * _SCALE).softmax(-1) @ value.double()
    expect_equal(look, "the row without keys", seen[:, :, 2], torch.zeros_like(seen[:, :, 2]))
    others = [0, 1, 3, 4]
    expect_close(look, "the other rows", seen[:, :, others], expected[:, :, others], _SHARE)
    shift = drawn(1, _HEADS, _LENGTH, _KEYS, seed=9, dtype=torch.float16)
    shifted = run(look, _ATTENTION, *given, _HEADS, "BNSD", scale=_SCALE, pse=shift)[0]
    # Without pse_type 0 the shift is added to the scaled scores.
    scores = query.double() @ key.double().mT * _SCALE + shift.double()
    wanted = scores.softmax(-1) @ value.double()
    expect_close(look, "a shift of the scaled scores", shifted, wanted, 2 * _SHARE)


def torch_function(look: Look) -> None:
    """Call torch's own function, causal and with a mask."""
    query, key, value = (drawn(1, _HEADS, 6, _DIM, seed=seed).half() for seed in range(3))
    for name, causal in (("plain", False), ("causal", True)):
        attention = functional.scaled_dot_product_attention
        seen = run(look, attention, query, key, value, is_causal=causal)
        expected = attention(query.double(), key.double(), value.double(), is_causal=causal)
        expect_close(look, name, seen, expected, _SHARE)


def joined_rings(look: Look) -> None:
    """Join the attention over two halves of the keys by their statistics."""
    query, key, value = (
        drawn(1, _HEADS, length, _DIM, seed=seed).half()
        for seed, length in ((0, _LENGTH), (1, 8), (2, 8))
    )

    def stored(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(2, 0, 1, 3).flatten(2).contiguous()

    parts = []
    for keys in (slice(0, 4), slice(4, 8)):
        tensors = map(stored, (query, key[:, :, keys], value[:, :, keys]))
        found = run(look, _ATTENTION, *tensors, _HEADS, "SBH", scale=_SCALE)
        parts += [found[0], found[1], found[2]]
    joined = torch.ops.npu.npu_ring_attention_update(*parts)[0]
    scores = query.double() @ key.double().mT * _SCALE
    expected = scores.softmax(-1) @ value.double()
    expect_close(look, "as over all keys", joined, stored(expected), 2 * _SHARE)


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query = drawn(2, _HEADS, _LENGTH, _DIM, seed=0).half()
    key, value = (drawn(2, _HEADS, _KEYS, _DIM, seed=seed).half() for seed in (1, 2))
    return query, key, value
