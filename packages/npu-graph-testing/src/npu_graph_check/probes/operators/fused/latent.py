"""Sparse attention over selected latent keys, the indexer, and the gated delta rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import (
    drawn,
    expect_close,
    expect_equal,
    expect_refused,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_LATENT, _ROPE, _HEADS, _BLOCK, _CHOSEN = 512, 64, 4, 16, 4


def sparse_attention(look: Look) -> None:
    """Select keys, none for one query, and leave rows behind the lengths."""
    half = torch.bfloat16
    query = drawn(2, 2, _HEADS, _LATENT, seed=1, dtype=half)
    query_rope = drawn(2, 2, _HEADS, _ROPE, seed=2, dtype=half)
    key, key_rope = (
        drawn(2, _BLOCK, 1, _LATENT, seed=3, dtype=half),
        drawn(2, _BLOCK, 1, _ROPE, seed=4, dtype=half),
    )
    selection = torch.full((2, 2, 1, _CHOSEN), -1, dtype=torch.int32)
    selection[0, 0, 0, :2], selection[1, 0, 0, :3] = torch.tensor([3, 0]), torch.tensor([2, 5, 1])
    # The second query of the first sequence selects nothing; the second sequence has one query.
    scale = (_LATENT + _ROPE) ** -0.5
    given: dict[str, Any] = {
        "query": query,
        "key": key,
        "value": key,
        "sparse_indices": selection,
        "block_table": torch.tensor([[1], [0]], dtype=torch.int32),
        "actual_seq_lengths_query": torch.tensor([2, 1], dtype=torch.int32),
        "actual_seq_lengths_kv": torch.tensor([8, 8], dtype=torch.int32),
        "query_rope": query_rope,
        "key_rope": key_rope,
        "scale_value": scale,
        "sparse_block_size": 1,
        "layout_query": "BSND",
        "layout_kv": "PA_BSND",
        "sparse_mode": 0,
        "attention_mode": 2,
    }
    operator = "npu_sparse_flash_attention"
    output = run(look, operator, **given)[0].cpu()
    for sequence, page in ((0, 1), (1, 0)):
        chosen = [place for place in selection[sequence, 0, 0].tolist() if place >= 0]
        keys = torch.cat([key, key_rope], -1)[page, chosen, 0].double()
        own = torch.cat([query, query_rope], -1)[sequence, 0].double()
        expected = (own @ keys.T * scale).softmax(-1) @ keys[:, :_LATENT]
        seen = output[sequence, 0]
        expect_close(look, f"selected keys, sequence {sequence}", seen, expected, 1e-2)
    zeros = torch.zeros_like(output[0, 1])
    expect_equal(look, "a query that selects nothing", output[0, 1], zeros)
    expect_equal(look, "a row past the length", output[1, 1], zeros)
    expect_refused(look, "sinks", operator, **given, sinks=torch.ones(_HEADS))
    del given["key_rope"]
    expect_refused(look, "a call without rotary parts of the keys", operator, **given)


def indexer(look: Look) -> None:
    """Choose among keys of equal scores, and in rows past the totals."""
    heads, dim, count = 8, 128, 6
    query = torch.ones(3, heads, dim, dtype=torch.bfloat16)
    key = torch.zeros(8, 1, dim, dtype=torch.bfloat16)
    # Scores in the order of the keys: 1, 2, 1, 2, 0, ...
    for place, value in enumerate((1.0, 2.0, 1.0, 2.0)):
        key[place, 0, 0] = value
    chosen = _chosen(look, query, key, 2, count)
    look.expect(
        "the larger score first, of equals the lower", chosen[0, 0].tolist(), [1, 3, 0, 2, 4, 5]
    )
    look.expect("a row past the totals", chosen[2, 0].tolist(), [-1] * count)


def few_keys(look: Look) -> None:
    """Choose more keys than there are."""
    half = torch.float16
    query, key = drawn(1, 8, 128, seed=1, dtype=half), drawn(3, 1, 128, seed=2, dtype=half)
    chosen = _chosen(look, query, key, 1, 6)
    scores = (query[0].double() @ key[:, 0].double().T).relu().sum(0)
    order = scores.argsort(descending=True).tolist()
    look.expect(
        "all keys in the order of their scores, then -1",
        chosen[0, 0].tolist(),
        [*order, -1, -1, -1],
    )


def _chosen(
    look: Look, query: torch.Tensor, key: torch.Tensor, tokens: int, count: int
) -> torch.Tensor:
    """Return what an indexer of equal weights chooses for queries, `tokens` of them, on the CPU."""
    chosen: torch.Tensor = run(
        look,
        "npu_lightning_indexer",
        query,
        key,
        torch.ones(query.shape[:2], dtype=query.dtype),
        actual_seq_lengths_query=torch.tensor([tokens], dtype=torch.int32),
        actual_seq_lengths_key=torch.tensor([len(key)], dtype=torch.int32),
        layout_query="TND",
        layout_key="TND",
        sparse_count=count,
        sparse_mode=0,
    )[0]
    return chosen.cpu()


def delta_rule(look: Look) -> None:
    """Step the recurrent form, and give it states that it refuses."""
    half = torch.bfloat16
    unit = torch.nn.functional.normalize
    heads, dim, places = 2, 32, torch.tensor([2, 0], dtype=torch.int32)
    query, key = (unit(drawn(2, heads, dim, seed=seed), dim=-1).to(half) for seed in (1, 2))
    value, beta = (
        drawn(2, heads, dim, seed=3, dtype=half),
        drawn(2, heads, seed=4).sigmoid().to(half),
    )
    gate, state = -drawn(2, heads, seed=5).sigmoid(), drawn(3, heads, dim, dim, seed=7, dtype=half)
    given: dict[str, Any] = {"key": key, "value": value, "beta": beta, "g": gate}
    given |= {
        "scale": dim**-0.5,
        "actual_seq_lengths": torch.tensor([2], dtype=torch.int32),
        "ssm_state_indices": places,
    }
    operator, own = "npu_recurrent_gated_delta_rule", state.to(look.on)
    output = run(look, operator, state=own, query=query, **given)
    now, outputs, states = state[2].double(), [], []
    for token in range(2):
        now = now * gate[token].double().exp().view(-1, 1, 1)
        known = (now @ key[token].double().unsqueeze(-1)).squeeze(-1)
        change = (value[token].double() - known) * beta[token].double().view(-1, 1)
        now = now + change.unsqueeze(-1) @ key[token].double().unsqueeze(1)
        outputs.append((now @ query[token].double().unsqueeze(-1)).squeeze(-1) * dim**-0.5)
        states.append(now)
    expect_close(look, "outputs", output, torch.stack(outputs), 1e-2)
    kept = own.cpu()
    expect_close(look, "the state behind the first token", kept[2], states[0], 1e-2)
    expect_close(look, "the state behind the second", kept[0], states[1], 1e-2)
    expect_equal(look, "a state that no token has", kept[1], state[1])
    turned = state.to(look.on).transpose(-1, -2)
    refused = "a state that is not contiguous"
    expect_refused(look, refused, operator, state=turned, query=query, **given)
    expect_refused(look, "queries of float16", operator, state=own, query=query.half(), **given)


def quantised_keys(look: Look) -> None:
    """Attend to rows of int8 keys, rotary parts and scales; the tensor of values is not read."""
    half, tile = torch.bfloat16, 128
    query = drawn(1, 2, _HEADS, _LATENT + _ROPE, seed=1, dtype=half)
    generator = torch.Generator().manual_seed(2)
    latent = torch.randint(-127, 128, (_BLOCK, _LATENT), generator=generator).to(torch.int8)
    rope, sizes = drawn(_BLOCK, _ROPE, seed=3, dtype=half), drawn(_BLOCK, 4, seed=4).abs() / 64
    rows = torch.cat([latent, rope.view(torch.int8), sizes.view(torch.int8)], -1)
    look.expect("bytes of a row", rows.shape[-1], 656)
    cache = rows.view(1, _BLOCK, 1, -1)
    selection, scale = [5, 2, 9], (_LATENT + _ROPE) ** -0.5
    # The second query selects nothing.
    indices = torch.tensor([[*selection, -1], [-1] * _CHOSEN], dtype=torch.int32)
    output = run(
        look,
        "npu_kv_quant_sparse_flash_attention",
        query=query,
        key=cache,
        value=torch.zeros_like(cache),
        sparse_indices=indices.view(1, 2, 1, _CHOSEN),
        scale_value=scale,
        key_quant_mode=2,
        value_quant_mode=2,
        block_table=torch.tensor([[0]], dtype=torch.int32),
        actual_seq_lengths_query=torch.tensor([2], dtype=torch.int32),
        actual_seq_lengths_kv=torch.tensor([12], dtype=torch.int32),
        sparse_block_size=1,
        layout_query="BSND",
        layout_kv="PA_BSND",
        sparse_mode=0,
        attention_mode=2,
    )
    values = (latent.float() * sizes.repeat_interleave(tile, -1)).to(half).double()
    keys = torch.cat([values, rope.double()], -1)[selection]
    weights = (query[0, 0].double() @ keys.T * scale).softmax(-1)
    expect_close(look, "output", output[0, 0], weights @ values[selection], 1e-2)
    none = torch.zeros(_HEADS, _LATENT, dtype=half)
    expect_equal(look, "a query that selects nothing", output[0, 1], none)
