"""Tests of qwen3_engine.serving.sampling."""

from __future__ import annotations

import pytest
import torch

from qwen3_engine.errors import RequestError
from qwen3_engine.serving.sampling import Sampler, SamplingParameters

LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.9, -5.0])


def _draws(count: int, **parameters: float) -> list[int]:
    integers = {"top_k", "seed"}
    values = {name: int(v) if name in integers else v for name, v in parameters.items()}
    sampler = Sampler(SamplingParameters(max_tokens=1, **values))  # type: ignore[arg-type]
    return [sampler.choose(LOGITS) for _ in range(count)]


def test_choose_temperature_zero_takes_the_best() -> None:
    assert _draws(3) == [1, 1, 1]


def test_choose_equally_good_tokens_takes_the_lowest() -> None:
    sampler = Sampler(SamplingParameters(max_tokens=1))

    assert sampler.choose(torch.tensor([1.0, 2.0, 2.0])) == 1


def test_choose_same_seed_gives_the_same_tokens() -> None:
    assert _draws(50, temperature=1.0, seed=3) == _draws(50, temperature=1.0, seed=3)


def test_choose_other_seed_gives_other_tokens() -> None:
    assert _draws(50, temperature=1.0, seed=3) != _draws(50, temperature=1.0, seed=4)


def test_choose_global_generator_has_no_influence() -> None:
    torch.manual_seed(1)
    first = _draws(20, temperature=1.0)
    torch.manual_seed(2)

    assert _draws(20, temperature=1.0) == first


def test_choose_top_k_draws_among_the_best_only() -> None:
    assert set(_draws(100, temperature=5.0, top_k=2)) == {1, 3}


def test_choose_top_p_draws_among_the_fewest_that_reach_it() -> None:
    # Probabilities at temperature 1: token 1 has 0.475, token 3 0.43, token 2 0.064.
    assert set(_draws(100, temperature=1.0, top_p=0.4)) == {1}
    assert set(_draws(100, temperature=1.0, top_p=0.8)) == {1, 3}


def test_choose_temperature_one_follows_the_probabilities() -> None:
    draws = torch.tensor(_draws(4000, temperature=1.0))

    frequencies = torch.bincount(draws, minlength=5) / 4000

    # Four standard deviations of a frequency of about one half.
    assert torch.allclose(frequencies, torch.softmax(LOGITS, 0), atol=4 * (0.25 / 4000) ** 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 0), ("temperature", -0.1), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.1)],
)
def test_sampling_parameters_out_of_range_are_named(name: str, value: float) -> None:
    values: dict[str, object] = {"max_tokens": 1, name: value}

    with pytest.raises(RequestError, match=f"{name} is {value}"):
        SamplingParameters(**values)  # type: ignore[arg-type]
