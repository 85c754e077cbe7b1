"""Several decode steps in one replay: the tokens of single steps, with ends at random places.

The gate runs a few dozen of the seeded runs; ``--repeated-runs=500`` runs more.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from qwen3_engine import (
    Engine,
    EngineConfig,
    FinishReason,
    Request,
    RequestOutput,
    SamplingParameters,
    SchedulerConfig,
)
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

SHAPE = TinyShape(num_layers=1)
STEPS = (1, 3, 8)
SEQUENCES, MAX_LENGTH, NUM_BLOCKS = 4, 160, 9
# A sequence crosses into its second block, the cache is full before all are done, and at the end
# of a sequence fewer tokens are wanted than a replay has.
LONGEST_PROMPT, MOST_TOKENS = 130, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("one_layer"), shape=SHAPE)


@pytest.fixture(scope="module")
def runners(
    folder: Path, device: NpuDevice
) -> Iterator[dict[tuple[str, int], CompiledModelRunner]]:
    """Runners by mode and steps, with one capture size, so that products round alike."""
    made: dict[tuple[str, int], CompiledModelRunner] = {}
    for mode, steps in [*(("full", steps) for steps in STEPS), ("breakable", 3)]:
        made[mode, steps] = CompiledModelRunner.load(
            folder,
            {
                "mode": mode,
                "fuse": False,
                "capture_sizes": [SEQUENCES],
                "prefill_capture_sizes": [SEQUENCES * MAX_LENGTH],
            },
            device=device,
            num_blocks=NUM_BLOCKS,
            max_length=MAX_LENGTH,
            max_num_sequences=SEQUENCES,
            decode_steps=steps,
        )
        made[mode, steps].capture()
    yield made
    for runner in made.values():
        runner.close()


def _requests(seed: int) -> list[Request]:
    random = Random(seed)
    requests = []
    for number in range(random.randint(1, SEQUENCES + 2)):
        length = random.choice((random.randint(1, 12), random.randint(100, LONGEST_PROMPT)))
        vocabulary = range(SHAPE.vocab_size)
        requests.append(
            Request(
                prompt=tuple(random.choices(vocabulary, k=length)),
                sampling=SamplingParameters(
                    max_tokens=random.randint(1, MOST_TOKENS),
                    temperature=random.choice((0.0, 0.7, 1.5)),
                    seed=random.randrange(2**62) if number % 2 else number,
                    # One token of so many ends the text, wherever it comes up.
                    stop_token_ids=tuple(random.sample(vocabulary, SHAPE.vocab_size // 16)),
                ),
            )
        )
    return requests


def _serve(runner: CompiledModelRunner, requests: list[Request]) -> list[RequestOutput]:
    engine = Engine(
        runner,
        runner.model.config,
        EngineConfig(
            num_blocks=NUM_BLOCKS,
            max_length=MAX_LENGTH,
            scheduler=SchedulerConfig(max_num_sequences=SEQUENCES),
            samples_on_device=True,
        ),
    )
    outputs = engine.generate(requests)
    assert engine.num_free_blocks == NUM_BLOCKS - 1
    return outputs


# Many runs are padded often.
@pytest.mark.filterwarnings("ignore:running decode steps:RuntimeWarning")
def test_tokens_are_those_of_single_steps(
    runners: dict[tuple[str, int], CompiledModelRunner], pytestconfig: pytest.Config
) -> None:
    reasons: set[FinishReason] = set()
    lengths: set[int] = set()
    for seed in range(pytestconfig.getoption("repeated_runs")):
        requests = _requests(seed)
        expected = _serve(runners["full", 1], requests)
        for name, runner in runners.items():
            if name == ("full", 1) or (name[0] != "full" and seed % 8):
                continue
            found = _serve(runner, requests)
            assert [out.tokens for out in found] == [out.tokens for out in expected], (seed, name)
            assert [out.finish_reason for out in found] == [out.finish_reason for out in expected]
        reasons.update(out.finish_reason for out in expected)
        lengths.update(len(out.tokens) for out in expected)
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}
    assert len(lengths) > 8


def test_host_waits_once_for_all_tokens_of_a_replay(
    runners: dict[tuple[str, int], CompiledModelRunner], device: NpuDevice
) -> None:
    sampling = SamplingParameters(max_tokens=17, temperature=1.0, seed=5)
    request = Request(prompt=(3, 1, 4), sampling=sampling)
    replays, further_waits = {}, set()
    for steps in STEPS:
        device.synchronize()
        before = cann_sim.counters()
        _serve(runners["full", steps], [request])
        made = cann_sim.counters() - before
        replays[steps] = made.replays
        further_waits.add(made.synchronisations - made.replays)
    # Those of prefill, which copies what the sampler takes; it gives the first token.
    assert len(further_waits) == 1
    assert replays == {steps: 1 + -(-16 // steps) for steps in STEPS}


def test_sampling_not_supported_on_the_device_is_refused(
    runners: dict[tuple[str, int], CompiledModelRunner],
) -> None:
    options = ({"top_k": 3}, {"top_p": 0.5}, {"seed": -1})
    requests = [
        Request(prompt=(1,), sampling=SamplingParameters(max_tokens=1, temperature=1.0, **each))
        for each in options
    ]
    for output in _serve(runners["full", 3], requests):
        assert output.finish_reason is FinishReason.REFUSED
        assert "samples on the device" in str(output.error)


def test_captures_touch_no_block_but_that_of_padding(
    runners: dict[tuple[str, int], CompiledModelRunner],
) -> None:
    runner = runners["full", 8]
    layers: Any = runner.model.layers
    caches: list[torch.Tensor] = [
        cache for layer in layers for cache in (layer.key_cache, layer.value_cache)
    ]
    for cache in caches:
        cache.fill_(float("nan"))
    before = [cache[1:].cpu().view(torch.int16) for cache in caches]
    runner.release()
    runner.capture()
    after = [cache[1:].cpu().view(torch.int16) for cache in caches]
    assert all(itertools.starmap(torch.equal, zip(before, after, strict=True)))
