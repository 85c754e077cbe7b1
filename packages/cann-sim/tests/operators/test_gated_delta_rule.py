"""The gated delta rule of linear attention, against float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu

from operators import drawn_tensors

LENGTHS = [3, 1, 2]
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 4, 32, 24
BLOCKS = 9
SCALE = KEY_DIM**-0.5
random = partial(drawn_tensors.random, dtype=torch.bfloat16)


class Batch:
    """Packed sequences, with normalised queries and keys and gates in their documented ranges."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, tokens = lengths, sum(lengths)
        unit = torch.nn.functional.normalize
        self.query, self.key = (
            unit(random(tokens, KEY_HEADS, KEY_DIM, seed=seed).float(), dim=-1).bfloat16()
            for seed in (1, 2)
        )
        self.value = random(tokens, VALUE_HEADS, VALUE_DIM, seed=3)
        self.beta = random(tokens, VALUE_HEADS, seed=4).sigmoid()
        self.g = -random(tokens, VALUE_HEADS, seed=5, dtype=torch.float32).sigmoid()
        self.gk = -random(tokens, VALUE_HEADS, KEY_DIM, seed=6, dtype=torch.float32).sigmoid()

    def tensors(self, *names: str) -> dict[str, torch.Tensor]:
        return {name: getattr(self, name).to("npu") for name in names}

    def steps(
        self, state: torch.Tensor, tokens: range, *, g: bool, gk: bool
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return output and state after each token, in float64."""
        outputs, states = [], []
        group = VALUE_HEADS // KEY_HEADS
        state = state.double()
        for token in tokens:
            query, key = (
                t[token].double().repeat_interleave(group, 0) for t in (self.query, self.key)
            )
            gate = torch.ones(VALUE_HEADS, 1, KEY_DIM, dtype=torch.double)
            gate = gate * self.g[token].double().exp().view(-1, 1, 1) if g else gate
            gate = gate * self.gk[token].double().exp().unsqueeze(1) if gk else gate
            beta = self.beta[token].double().view(-1, 1, 1)
            decayed = state * gate
            known = decayed @ key.unsqueeze(-1)
            change = self.value[token].double().unsqueeze(-1) - known
            state = decayed + beta * change @ key.unsqueeze(1)
            outputs.append((state @ query.unsqueeze(-1)).squeeze(-1) * SCALE)
            states.append(state)
        return outputs, states


def close(conformance: Any, result: torch.Tensor, reference: torch.Tensor) -> None:
    # Each token adds two products over a head's dimensions, of values below 6.
    ulps = 4.0 * KEY_DIM * (1 + max(LENGTHS))
    conformance.close(result.cpu(), reference, ulps=ulps, magnitude=torch.tensor(6.0).double())


@pytest.mark.parametrize("g", [True, False])
@pytest.mark.parametrize("gk", [True, False])
@pytest.mark.parametrize("accepted", [None, [2, 1, 2]])
def test_recurrent_form_stores_the_state_after_each_token(
    conformance: Any, g: bool, gk: bool, accepted: list[int] | None
) -> None:
    batch = Batch(LENGTHS)
    state = random(BLOCKS, VALUE_HEADS, VALUE_DIM, KEY_DIM, seed=7)
    places = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(8))[: sum(LENGTHS)]
    own = state.to("npu")
    names = [name for name, wanted in (("g", g), ("gk", gk)) if wanted]
    output = torch_npu.npu_recurrent_gated_delta_rule(
        **batch.tensors("query", "key", "value", "beta", *names),
        state=own,
        scale=SCALE,
        actual_seq_lengths=torch.tensor(LENGTHS, dtype=torch.int32).to("npu"),
        ssm_state_indices=places.int().to("npu"),
        num_accepted_tokens=None if accepted is None else torch.tensor(accepted).int().to("npu"),
    )
    outputs, expected, start = [], state.double(), 0
    for index, length in enumerate(LENGTHS):
        first = start + (1 if accepted is None else accepted[index]) - 1
        tokens = range(start, start + length)
        own_outputs, states = batch.steps(state[places[first]], tokens, g=g, gk=gk)
        outputs += own_outputs
        expected[places[start : start + length]] = torch.stack(states)
        start += length
    close(conformance, output, torch.stack(outputs))
    close(conformance, own, expected)


def test_functional_recurrent_form_leaves_the_states_alone() -> None:
    batch = Batch([2])
    state = random(3, VALUE_HEADS, VALUE_DIM, KEY_DIM, seed=7).to("npu")
    before = state.cpu()
    given = {
        **batch.tensors("query", "key", "value", "beta", "g"),
        "scale": SCALE,
        "actual_seq_lengths": torch.tensor([2], dtype=torch.int32).to("npu"),
        "ssm_state_indices": torch.tensor([2, 0], dtype=torch.int32).to("npu"),
    }
    output, changed = torch_npu.npu_recurrent_gated_delta_rule_functional(state=state, **given)
    assert torch.equal(state.cpu(), before)
    assert torch.equal(
        output.cpu(), torch_npu.npu_recurrent_gated_delta_rule(state=state, **given).cpu()
    )
    assert torch.equal(state.cpu(), changed.cpu())


@pytest.mark.parametrize("lengths", [[1], [37, 5, 70]])
@pytest.mark.parametrize("g", [True, False])
def test_chunk_form_gives_all_outputs_and_the_last_states(
    conformance: Any, lengths: list[int], g: bool
) -> None:
    batch = Batch(lengths)
    state = random(len(lengths), VALUE_HEADS, VALUE_DIM, KEY_DIM, seed=7)
    output, last = torch_npu.npu_chunk_gated_delta_rule(
        **batch.tensors("query", "key", "value", "beta", *(["g"] if g else [])),
        initial_state=state.to("npu"),
        actual_seq_lengths=torch.tensor(lengths, dtype=torch.int32).to("npu"),
        scale=SCALE,
    )
    outputs, states, start = [], [], 0
    for index, length in enumerate(lengths):
        own, behind = batch.steps(state[index], range(start, start + length), g=g, gk=False)
        outputs += own
        states.append(behind[-1])
        start += length
    close(conformance, output, torch.stack(outputs))
    close(conformance, last, torch.stack(states))


def recurrent(**changes: Any) -> torch.Tensor:
    batch = Batch([2])
    given: dict[str, Any] = {
        **batch.tensors("query", "key", "value", "beta", "g"),
        "state": random(3, VALUE_HEADS, VALUE_DIM, KEY_DIM, seed=7).to("npu"),
        "scale": SCALE,
        "actual_seq_lengths": torch.tensor([2], dtype=torch.int32).to("npu"),
        "ssm_state_indices": torch.tensor([2, 0], dtype=torch.int32).to("npu"),
    }
    output: torch.Tensor = torch_npu.npu_recurrent_gated_delta_rule(**{**given, **changes})
    return output.cpu()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("query", torch.zeros(2, KEY_HEADS, KEY_DIM), "'query'.*bfloat16.*found float32"),
        ("state", torch.zeros(3, VALUE_HEADS, VALUE_DIM, KEY_DIM), "'stateRef'.*found float32"),
        ("value", torch.zeros(2, 3, VALUE_DIM).bfloat16(), "'value'.*multiple of their 2 heads"),
        ("beta", None, "beta"),
        ("g", torch.zeros(2, 1), "'g'"),
        ("ssm_state_indices", torch.zeros(2).long(), "'ssmStateIndices'.*int32"),
    ],
)
def test_what_the_device_refuses_is_refused(name: str, value: Any, reason: str, capfd: Any) -> None:
    del capfd
    changed = value.to("npu") if isinstance(value, torch.Tensor) else value
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        recurrent(**{name: changed})
