"""Tests of the engine with a toy model that reads its text through the paged cache."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.errors import ConfigError, EngineError
from qwen3_engine.serving.engine import Engine, EngineConfig, StepStatistics
from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.scheduler import SchedulerConfig, StepKind
from qwen3_engine.serving.sequence import FinishReason, Request, RequestOutput
from qwen3_engine.tests.paged_history_runner import PagedHistoryRunner

if TYPE_CHECKING:
    from qwen3_engine.qwen3.model_config import Qwen3Config
    from qwen3_engine.serving.step_batch import StepBatch


def _request(length: int, max_tokens: int, *, start: int = 1, **sampling: float) -> Request:
    prompt = tuple((start + index) % 512 for index in range(length))
    parameters = SamplingParameters(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Request(prompt=prompt, sampling=parameters)


def _engine(
    config: Qwen3Config,
    *,
    num_blocks: int = 40,
    max_length: int = 1024,
    statistics: list[StepStatistics] | None = None,
    **limits: int,
) -> tuple[Engine, PagedHistoryRunner]:
    runner = PagedHistoryRunner(num_blocks=num_blocks, vocab_size=config.vocab_size)
    engine_config = EngineConfig(
        num_blocks=num_blocks,
        max_length=max_length,
        scheduler=SchedulerConfig(**limits),
        record_logits=True,
    )
    on_step = None if statistics is None else statistics.append
    return Engine(runner, config, engine_config, on_step=on_step), runner


def _assert_served(
    runner: PagedHistoryRunner, requests: list[Request], outputs: list[RequestOutput]
) -> None:
    for request, output in zip(requests, outputs, strict=True):
        expected = runner.expected_tokens(request.prompt, request.sampling.max_tokens)
        assert output.prompt == request.prompt
        assert output.tokens == expected
        assert output.finish_reason is FinishReason.LENGTH


def test_generate_prompts_of_different_lengths_give_the_text_of_each_alone(
    config: Qwen3Config,
) -> None:
    engine, runner = _engine(config)
    requests = [_request(1, 3), _request(300, 20), _request(127, 5), _request(128, 200)]

    outputs = engine.generate(requests)

    _assert_served(runner, requests, outputs)
    assert engine.num_free_blocks == 39
    assert not engine.has_work


def test_step_requests_joining_later_do_not_disturb_the_running(config: Qwen3Config) -> None:
    engine, runner = _engine(config, max_num_sequences=3)
    requests = [_request(10 + 40 * index, 30 + 7 * index, start=index) for index in range(8)]
    outputs: dict[int, RequestOutput] = {}

    for request in requests:
        engine.add_request(request)
        for _ in range(5):
            outputs.update((output.request_id, output) for output in engine.step())
    while engine.has_work:
        outputs.update((output.request_id, output) for output in engine.step())

    _assert_served(runner, requests, [outputs[index] for index in range(8)])
    sizes = {batch.num_sequences for batch in runner.batches}
    assert sizes == {1, 2, 3}


def test_generate_cache_too_small_for_all_preempts_and_loses_nothing(config: Qwen3Config) -> None:
    statistics: list[StepStatistics] = []
    engine, runner = _engine(config, num_blocks=6, statistics=statistics)
    requests = [_request(120, 300, start=index) for index in range(3)]

    outputs = engine.generate(requests)

    _assert_served(runner, requests, outputs)
    assert sum(step.num_preempted for step in statistics) > 0
    assert engine.num_free_blocks == 5


def test_generate_released_blocks_are_used_again(config: Qwen3Config) -> None:
    engine, runner = _engine(config, num_blocks=3)

    for start in range(4):
        request = _request(130, 10, start=start)
        _assert_served(runner, [request], engine.generate([request]))

    tables = [batch.block_table.flatten().tolist() for batch in runner.batches]
    assert {block for table in tables for block in table} == {0, 1, 2}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (_request(1000, 100), "1100 in all are more than max_length, 1024"),
        (_request(600, 200), "need 7 blocks of 128, the whole cache has 5"),
        (Request(prompt=(), sampling=SamplingParameters(max_tokens=1)), "the prompt is empty"),
        (Request(prompt=(512,), sampling=SamplingParameters(max_tokens=1)), "the token 512"),
        (Request(prompt=(-1,), sampling=SamplingParameters(max_tokens=1)), "the token -1"),
    ],
)
def test_generate_request_that_cannot_be_served_is_refused_alone(
    config: Qwen3Config, bad: Request, reason: str
) -> None:
    engine, runner = _engine(config, num_blocks=6)
    good = [_request(5, 4), _request(200, 6, start=3)]

    first, refused, second = engine.generate([good[0], bad, good[1]])

    _assert_served(runner, good, [first, second])
    assert (refused.finish_reason, refused.tokens) == (FinishReason.REFUSED, ())
    assert reason in str(refused.error)


def test_generate_longest_request_that_fits_is_served(config: Qwen3Config) -> None:
    engine, runner = _engine(config, num_blocks=4, max_length=384)
    request = _request(383, 1)

    _assert_served(runner, [request], engine.generate([request]))


def test_generate_stop_token_ends_the_text_with_it(config: Qwen3Config) -> None:
    engine, runner = _engine(config)
    expected = runner.expected_tokens(_request(5, 10).prompt, 10)
    stop = SamplingParameters(max_tokens=10, stop_token_ids=(expected[3],))
    request = Request(prompt=_request(5, 10).prompt, sampling=stop)

    (output,) = engine.generate([request])

    assert output.tokens == expected[:4]
    assert output.finish_reason is FinishReason.STOP


def test_generate_end_token_of_the_model_ends_the_text(config: Qwen3Config) -> None:
    _, runner = _engine(config)
    request = _request(5, 10)
    expected = runner.expected_tokens(request.prompt, 10)
    engine, _ = _engine(dataclasses.replace(config, eos_token_ids=(expected[2],)))

    (output,) = engine.generate([request])

    assert output.tokens == expected[:3]
    assert output.finish_reason is FinishReason.STOP


def test_generate_sampling_is_a_function_of_the_seed_not_of_the_batch(config: Qwen3Config) -> None:
    sampled = [_request(9, 30, temperature=1.0, seed=seed) for seed in (1, 2)]
    alone, _ = _engine(config)
    together, _ = _engine(config, num_blocks=6)

    (first,) = alone.generate(sampled[:1])
    first_again, second, *_ = together.generate([*sampled, _request(120, 300), _request(125, 200)])

    assert first.tokens == first_again.tokens
    assert first.tokens != second.tokens


def test_generate_recorded_logits_are_those_of_each_token(config: Qwen3Config) -> None:
    engine, _ = _engine(config)

    (output,) = engine.generate([_request(5, 7)])

    assert output.logits is not None
    assert output.logits.shape == (7, 512)
    assert tuple(output.logits.argmax(dim=-1).tolist()) == output.tokens


def test_on_step_statistics_describe_each_step(config: Qwen3Config) -> None:
    statistics: list[StepStatistics] = []
    engine, _ = _engine(config, statistics=statistics)

    engine.generate([_request(5, 3), _request(9, 3)])

    steps = [(step.kind, step.num_sequences, step.num_tokens) for step in statistics]
    decode = (StepKind.DECODE, 2, 2)
    assert steps == [(StepKind.PREFILL, 2, 14), decode, decode]
    assert all(step.step_us >= step.run_us > 0 for step in statistics)


class _FailingRunner(PagedHistoryRunner):
    """Fails at one call, then works."""

    def __init__(self, *, fail_at: int, wrong: torch.Tensor | None, vocab_size: int) -> None:
        super().__init__(num_blocks=40, vocab_size=vocab_size)
        self._calls_left = fail_at
        self._wrong = wrong

    def _run(self, batch: StepBatch) -> torch.Tensor:
        self._calls_left -= 1
        if self._calls_left == -1:
            if self._wrong is not None:
                return self._wrong
            raise RuntimeError("device lost")
        return super()._run(batch)


@pytest.mark.parametrize("fail_at", [0, 1, 4])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "device lost"),
        (torch.full((2, 512), float("nan")), "request 0 are not finite"),
        (torch.zeros(2, 5), r"shape \(2, 5\), expected \(2, 512\)"),
    ],
    ids=["raises", "not finite", "wrong shape"],
)
def test_step_that_fails_is_computed_again_later(
    config: Qwen3Config, fail_at: int, wrong: torch.Tensor | None, message: str
) -> None:
    runner = _FailingRunner(fail_at=fail_at, wrong=wrong, vocab_size=config.vocab_size)
    engine = Engine(runner, config, EngineConfig(num_blocks=40, max_length=512))
    requests = [_request(100, 40), _request(7, 40)]
    too_long = _request(500, 40)
    for request in [*requests, too_long]:
        engine.add_request(request)
    outputs: list[RequestOutput] = []

    for _ in range(fail_at):
        outputs += engine.step()
    with pytest.raises((RuntimeError, EngineError), match=message):
        engine.step()
    while engine.has_work:
        outputs += engine.step()

    first, second, refused = sorted(outputs, key=lambda output: output.request_id)
    _assert_served(runner, requests, [first, second])
    assert refused.finish_reason is FinishReason.REFUSED


def test_engine_config_without_room_for_an_output_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_length is 1"):
        EngineConfig(num_blocks=2, max_length=1)
