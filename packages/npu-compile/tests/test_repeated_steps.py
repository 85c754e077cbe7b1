"""Several decode steps in one replay, and tokens sampled inside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import (
    ConfigError,
    DecodeRunner,
    InputError,
    InputSpec,
    TokenSampler,
)
from npu_compile.errors import OutputError
from npu_graph_runtime import GraphContext, GraphKey, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime import FakeDevice

SPECS = {
    "tokens": InputSpec(dtype=torch.int64),
    "added": InputSpec(dtype=torch.int64, trailing_shape=(4,)),
}
MODES = ("eager", "full", "breakable")


class Counting:
    """A model whose steps add a number and, where lengths are shown, the length of each row."""

    def __init__(self, device: FakeDevice, mode: str, *, steps: int, **options: Any) -> None:
        self.device = device
        self.shown: list[list[int]] = []
        self.lengths = [0] * 4
        context = GraphContext()
        self.attend = runs_eagerly(context)(self._attend) if mode == "breakable" else None
        config = {"mode": mode, "capture_sizes": (2, 4), "fuse": False}
        given = {
            "inputs": SPECS,
            "recorder": Recorder(device),
            "lane": UpdateLane(device),
            "set_lengths": self._set,
            "advance": self._advance,
            "growing": ("keys",),
            "groups": {},
        }
        self.runner = DecodeRunner(
            npu_compile.compile_model(self._model, config, device=device, context=context),
            steps=steps,
            **{**given, **options},
        )
        self.runner.capture(lambda size: self._show([0] * size))

    def run(self, tokens: list[int], added: list[list[int]], keys: list[int]) -> list[list[int]]:
        inputs = {"tokens": torch.tensor(tokens), "added": torch.tensor(added)}
        is_full = self.runner.compiled.config.mode.value == "full"
        lengths = {} if is_full else {"default": {"keys": keys}}
        found = self.runner.run(inputs, lengths).clone()
        self.device.synchronize()
        results: list[list[int]] = found.tolist()
        return results

    def _model(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = tokens * 3
        if self.attend is not None:
            out = torch.empty_like(hidden)
            self.attend(hidden, out)
            return out + 0
        return hidden

    def _attend(self, hidden: torch.Tensor, out: torch.Tensor) -> None:
        torch.add(hidden, torch.tensor(self.lengths[: len(hidden)]), out=out)

    def _advance(
        self, step: int, inputs: Mapping[str, torch.Tensor], output: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        token = output + inputs["added"][:, step]
        return token, {"tokens": token}

    def _show(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def _set(self, lengths: Any) -> None:
        self.shown.append(list(lengths["default"]["keys"]) if lengths else [])
        self._show([*self.shown[-1], *[0] * 4])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_each_step_runs_on_what_the_last_one_gave(mode: str, rows: int, device: FakeDevice) -> None:
    counting = Counting(device, mode, steps=4)
    keys = [5 * row for row in range(rows)]
    for seed in range(3):
        tokens = [seed + row for row in range(rows)]
        added = [[row * 7 + step for step in range(4)] for row in range(rows)]
        expected = []
        for row, token in enumerate(tokens):
            of_row = []
            for step in range(4):
                length = keys[row] + step if keys[row] and mode == "breakable" else 0
                token = token * 3 + length + added[row][step]  # noqa: PLW2901
                of_row.append(token)
            expected.append(of_row)
        assert counting.run(tokens, added, keys) == expected
    if mode == "full":
        assert counting.runner.compiled.captured_keys == {
            GraphKey(num_tokens=size, num_sequences=size, uniform=True, extra=("4 steps",))
            for size in (2, 4)
        }
        assert counting.runner.compiled.num_captured_graphs == 2
    else:
        assert counting.shown[-4:] == [[k + step if k else 0 for k in keys] for step in range(4)]


def test_single_steps_and_several_are_captured_side_by_side(device: FakeDevice) -> None:
    several, single = (Counting(device, "full", steps=steps) for steps in (4, 1))
    token, added = 1, [3, 1, 4, 1]
    (found,) = several.run([token], [added], [1])
    for step in range(4):
        ((token,),) = single.run([token], [added[step:] + added[:step]], [1])
        assert token == found[step]


def test_a_larger_batch_runs_all_steps_eagerly(device: FakeDevice) -> None:
    counting = Counting(device, "full", steps=2)
    with pytest.warns(RuntimeWarning, match="decode batch of 5 rows"):
        found = counting.run([1, 2, 3, 4, 5], [[0] * 4] * 5, [1])
    assert found == [[3 * token, 9 * token] for token in range(1, 6)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0, expected a whole number"),
        ({"steps": 2, "advance": None}, "of 2 steps: there is no advance"),
        ({"steps": 1, "advance": None}, "leave steps and growing out"),
        ({"steps": 2, "advance": 3}, "advance is 3, expected a function"),
        ({"steps": 2, "query_length": 2}, "query_length is 2, expected 1"),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    options: dict[str, Any], message: str, device: FakeDevice
) -> None:
    with pytest.raises(ConfigError, match=message):
        Counting(device, "full", **options)


def test_segments_without_set_lengths_are_refused(device: FakeDevice) -> None:
    with pytest.raises(ConfigError, match="set_lengths is needed"):
        Counting(device, "breakable", steps=2, set_lengths=None)


@pytest.mark.parametrize(
    ("following", "message"),
    [({"tokenz": torch.zeros(2)}, "expected one of the inputs"), ({"tokens": torch.zeros(1)}, "1")],
)
def test_inputs_of_the_next_step_that_differ_are_refused(
    following: dict[str, torch.Tensor], message: str, device: FakeDevice
) -> None:
    with pytest.raises(OutputError, match=f"inputs of decode step 1: .*{message}"):
        Counting(device, "full", steps=2, advance=lambda *given: (given[2], following))


def test_lengths_that_should_grow_and_are_not_given_are_refused(device: FakeDevice) -> None:
    counting = Counting(device, "breakable", steps=2, growing=("keyz",))
    with pytest.raises(InputError, match=r"growing names \['keyz'\]"):
        counting.run([1], [[0] * 4], [1])


def test_sampler_is_greedy_at_temperature_0_and_draws_as_softmax_says() -> None:
    rows, vocabulary = 20_000, 5
    sampler = TokenSampler(vocabulary, device=torch.device("cpu"))
    logits = torch.tensor([0.3, 1.1, -0.7, 1.1, 0.0]).expand(rows, -1)
    seeds, positions = torch.full((rows,), 2**40 + 3), torch.arange(rows)

    greedy = sampler(logits, temperatures=torch.zeros(rows), seeds=seeds, positions=positions)
    assert set(greedy.tolist()) == {1}
    for temperature in (0.5, 2.0):
        temperatures = torch.full((rows,), temperature)
        drawn = sampler(logits, temperatures=temperatures, seeds=seeds, positions=positions)
        again = sampler(logits, temperatures=temperatures, seeds=seeds, positions=positions)
        assert torch.equal(drawn, again)
        counts = drawn.bincount(minlength=vocabulary) / rows
        expected = torch.softmax(logits[0] / temperature, -1)
        # Five standard deviations of a count of so many draws.
        torch.testing.assert_close(counts, expected, rtol=0, atol=5 * (0.25 / rows) ** 0.5)


def test_samples_of_neighbouring_seeds_positions_and_tokens_do_not_go_together() -> None:
    rows, vocabulary = 4000, 2
    sampler = TokenSampler(vocabulary, device=torch.device("cpu"))
    logits, temperatures = torch.zeros(rows, vocabulary), torch.ones(rows)

    def bits(seed: int, first: int) -> torch.Tensor:
        seeds, positions = torch.full((rows,), seed), torch.arange(first, first + rows)
        drawn = sampler(logits, temperatures=temperatures, seeds=seeds, positions=positions)
        return drawn.double() * 2 - 1

    base = bits(0, 0)
    for other in (bits(1, 0), bits(2, 0), bits(0, 1), bits(1, 1), base.roll(2)):
        assert abs(float((base * other).mean())) < 5 / rows**0.5


def test_sampler_of_no_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocab_size is 0"):
        TokenSampler(0, device=torch.device("cpu"))
