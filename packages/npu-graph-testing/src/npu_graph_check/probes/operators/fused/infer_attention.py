"""Parts of fused attention that the attention kinds leave out, in one small batch layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import drawn, expect_close, expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_BATCH, _HEADS, _LENGTH, _KEYS, _DIM, _SCALE = 2, 4, 3, 6, 64, 0.1
_SHARE = 4e-3  # of the largest value: what float16 weights may lose


class _Attention:
    """Queries, keys and values ``[2, 4, S, 64]`` in float16."""

    def __init__(self, look: Look) -> None:
        self._look = look
        half = torch.float16
        self.query = drawn(_BATCH, _HEADS, _LENGTH, _DIM, seed=0, dtype=half)
        self.key, self.value = (
            drawn(_BATCH, _HEADS, _KEYS, _DIM, seed=seed, dtype=half) for seed in (1, 2)
        )

    def run(self, **changes: Any) -> torch.Tensor:
        """Return the output on the CPU."""
        output: torch.Tensor = run(
            self._look,
            "npu_fused_infer_attention_score",
            self.query,
            self.key,
            self.value,
            num_heads=_HEADS,
            num_key_value_heads=_HEADS,
            input_layout="BNSD",
            scale=_SCALE,
            **changes,
        )[0]
        return output.cpu()

    def expected(
        self,
        index: int,
        queries: slice = slice(None),
        keys: slice = slice(None),
        bias: torch.Tensor | float = 0.0,
    ) -> torch.Tensor:
        """Return one sequence of the output, in float64."""
        key, value = self.key[index, :, keys], self.value[index, :, keys]
        return _attend(self.query[index, :, queries], key, value, bias)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | float = 0.0
) -> torch.Tensor:
    scores = query.double() @ key.double().mT * _SCALE + bias
    return scores.softmax(-1) @ value.double()


def rows_past_lengths(look: Look) -> None:
    """Give fewer queries than the layout has rows."""
    attention = _Attention(look)
    output = attention.run(actual_seq_lengths=[2, 1], actual_seq_lengths_kv=[6, 4])
    for index, (rows, keys) in enumerate(((2, 6), (1, 4))):
        expected = attention.expected(index, slice(rows), slice(keys))
        expect_close(look, f"sequence {index}", output[index, :, :rows], expected, _SHARE)
        behind = output[index, :, rows:]
        expect_equal(look, f"rows behind sequence {index}", behind, torch.zeros_like(behind))


def compressed_mask(look: Look) -> None:
    """Pass a compressed mask that is 0 everywhere: as if there were none."""
    attention = _Attention(look)
    causal = torch.ones(2048, 2048, dtype=torch.int8).triu(1)
    triangle = attention.run(sparse_mode=2, atten_mask=causal)
    empty = attention.run(sparse_mode=2, atten_mask=torch.zeros_like(causal))
    for index in range(_BATCH):
        ahead = torch.full((_LENGTH, _KEYS), -float("inf"), dtype=torch.float64).triu(1)
        expected = attention.expected(index, bias=ahead)
        expect_close(look, f"the triangle, sequence {index}", triangle[index], expected, _SHARE)
        plain = attention.expected(index)
        expect_close(look, f"zeros, sequence {index}", empty[index], plain, _SHARE)


def shared_prefix(look: Look) -> None:
    """Put a prefix before the keys, also under a causal mask."""
    attention = _Attention(look)
    prefix = [drawn(1, _HEADS, 5, _DIM, seed=seed, dtype=torch.float16) for seed in (3, 4)]
    given: dict[str, Any] = {"key_shared_prefix": prefix[0], "value_shared_prefix": prefix[1]}
    mask = torch.ones(2048, 2048, dtype=torch.int8).triu(1)
    plain = attention.run(**given)
    causal = attention.run(**given, sparse_mode=3, atten_mask=mask)
    for index in range(_BATCH):
        key, value = (
            torch.cat([p[0], t[index]], 1)
            for p, t in zip(prefix, (attention.key, attention.value), strict=True)
        )
        query, keys = attention.query[index], key.shape[1]
        ahead = torch.full((_LENGTH, keys), -float("inf"), dtype=torch.float64)
        ahead = ahead.triu(keys - _LENGTH + 1)
        for name, output, bias in (("no mask", plain, 0.0), ("sparse mode 3", causal, ahead)):
            expected = _attend(query, key, value, bias)
            expect_close(look, f"{name}, sequence {index}", output[index], expected, _SHARE)


def padding_on_the_left(look: Look) -> None:
    """Let rows and keys end before the end of their layout."""
    attention = _Attention(look)
    output = attention.run(
        actual_seq_lengths=[2, 1],
        actual_seq_lengths_kv=[4, 3],
        query_padding_size=torch.tensor([1]),
        kv_padding_size=torch.tensor([2]),
    )
    for index, (rows, keys) in enumerate(((2, 4), (1, 3))):
        own = slice(_LENGTH - 1 - rows, _LENGTH - 1)
        seen = slice(_KEYS - 2 - keys, _KEYS - 2)
        expected = attention.expected(index, own, seen)
        expect_close(look, f"sequence {index}", output[index, :, own], expected, _SHARE)


def position_shift(look: Look) -> None:
    """Add a shift to the scaled scores."""
    attention = _Attention(look)
    shift = drawn(1, _HEADS, _LENGTH, _KEYS, seed=5, dtype=torch.float16)
    output = attention.run(pse_shift=shift)
    for index in range(_BATCH):
        expected = attention.expected(index, bias=shift[0].double())
        expect_close(look, f"sequence {index}", output[index], expected, 2 * _SHARE)


def quantised_output(look: Look) -> None:
    """Quantise the result: of values that are all one number."""
    attention = _Attention(look)
    attention.value = torch.full_like(attention.value, 0.75)
    output = attention.run(quant_scale2=torch.tensor([10.0]), quant_offset2=torch.tensor([3.2]))
    look.expect("dtype", str(output.dtype), "torch.int8")
    look.expect("0.75 * 10 + 3.2", sorted(set(output.reshape(-1).tolist())), [11])


def one_length(look: Look) -> None:
    """Give one length for all sequences."""
    attention = _Attention(look)
    output = attention.run(actual_seq_lengths_kv=[4])
    for index in range(_BATCH):
        expected = attention.expected(index, keys=slice(4))
        expect_close(look, f"sequence {index}", output[index], expected, _SHARE)


def older_names(look: Look) -> None:
    """Call the operators that fused attention has replaced."""
    attention = _Attention(look)
    query, key, value = attention.query, attention.key, attention.value
    prompt = run(
        look,
        "npu_prompt_flash_attention",
        query,
        key,
        value,
        num_heads=_HEADS,
        num_key_value_heads=_HEADS,
        scale_value=_SCALE,
        input_layout="BNSD",
        pre_tokens=65535,
        next_tokens=65535,
    )
    expected = _attend(query, key, value)
    expect_close(look, "PromptFlashAttention", prompt, expected, _SHARE)
    last = run(
        look,
        "npu_incre_flash_attention",
        query[:, :, :1].contiguous(),
        key,
        value,
        num_heads=_HEADS,
        scale_value=_SCALE,
        input_layout="BNSD",
        actual_seq_lengths=[4, 6],
    )
    for index, keys in enumerate((4, 6)):
        expected = attention.expected(index, slice(1), slice(keys))
        expect_close(look, f"IncreFlashAttention, {keys} keys", last[index], expected, _SHARE)


def latent_statistics(look: Look) -> None:
    """Ask for log-sum-exps of latent keys with rotary parts, which documents exclude."""
    half = torch.bfloat16
    query, rope = drawn(1, 8, 512, seed=1, dtype=half), drawn(1, 8, 64, seed=2, dtype=half)
    key, key_rope = drawn(1, 128, 512, seed=3, dtype=half), drawn(1, 128, 64, seed=4, dtype=half)
    keys, scale = 50, 576**-0.5
    output, sums = run(
        look,
        "npu_fused_infer_attention_score",
        query.view(1, 8, 1, 512),
        key,
        key,
        query_rope=rope.view(1, 8, 1, 64),
        key_rope=key_rope,
        block_table=torch.tensor([[0]], dtype=torch.int32),
        block_size=128,
        actual_seq_lengths_kv=[keys],
        num_heads=8,
        num_key_value_heads=1,
        scale=scale,
        input_layout="BNSD",
        softmax_lse_flag=True,
    )
    own = torch.cat([query[0], rope[0]], -1).double()
    rows = torch.cat([key[0, :keys], key_rope[0, :keys]], -1).double()
    scores = own @ rows.T * scale
    expected = scores.softmax(-1) @ rows[:, :512]
    expect_close(look, "output", output.reshape(8, 512), expected, 2e-2)
    expect_close(look, "log-sum-exp", sums.reshape(8), scores.logsumexp(-1), 1e-3)
