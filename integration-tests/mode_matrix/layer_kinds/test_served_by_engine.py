"""The example engine serves models with other layers: tokens of every mode equal those of eager."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from cann_sim.engine_kernels.vllm_ascend_sparse import register
from npu_compile import CompileMode
from qwen3_engine import Engine, EngineConfig, Request, SamplingParameters, SchedulerConfig
from qwen3_engine.layer_kinds import LinearLayers, SparseLayers
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice
    from qwen3_engine import RequestOutput, StepStatistics

# Steps that are larger than every capture size are here on purpose.
pytestmark = pytest.mark.filterwarnings(r"ignore:running a \w+ batch:RuntimeWarning")
NUM_SEQUENCES, NUM_IN_A_SHARE, NUM_BLOCKS, MAX_LENGTH = 44, 12, 5, 256
# Its operator for whole sequences reads host lengths, so a graph cannot contain prefill.
WITHOUT_PREFILL_GRAPHS = {CompileMode.FULL, CompileMode.TORCHAIR, CompileMode.MEASURED}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    return write_tiny_checkpoint(folder, shape=TinyShape(num_layers=2), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def eager_tokens() -> dict[type, list[tuple[int, ...]]]:
    """The tokens of eager steps, by layers."""
    return {}


def requests(count: int, seed: int) -> list[Request]:
    random = Random(seed)
    made = []
    for _ in range(count):
        # Some cross the end of a block, and then need another where there may be none.
        length = random.choice((random.randint(1, 20), random.randint(122, 128)))
        prompt = tuple(random.randrange(512) for _ in range(length))
        sampling = SamplingParameters(max_tokens=random.randint(1, 9))
        made.append(Request(prompt=prompt, sampling=sampling))
    return made


def serve(
    layers: type[LinearLayers | SparseLayers],
    mode: CompileMode,
    folder: Path,
    device: NpuDevice,
    *,
    count: int,
    seed: int,
) -> list[tuple[int, ...]]:
    """Return the tokens of sequences that join two at a time, and lose their blocks to others."""
    has_prefill = layers is SparseLayers or mode not in WITHOUT_PREFILL_GRAPHS
    options: dict[str, Any] = {"mode": mode.value, "capture_sizes": (2, 4)}
    options["prefill_capture_sizes"] = (32,) if has_prefill else ()
    runner = CompiledModelRunner.load(
        folder,
        options,
        device=device,
        num_blocks=NUM_BLOCKS,
        max_length=MAX_LENGTH,
        max_num_sequences=5,
        make_layers=layers,
    )
    runner.capture()
    config = EngineConfig(
        num_blocks=NUM_BLOCKS,
        max_length=MAX_LENGTH,
        scheduler=SchedulerConfig(max_num_sequences=5),
    )
    steps: list[StepStatistics] = []
    engine = Engine(runner, runner.model.config, config, on_step=steps.append)
    waiting = requests(count, seed)
    outputs: list[RequestOutput] = []
    while waiting or engine.has_work:
        for request in waiting[:2]:
            engine.add_request(request)
        del waiting[:2]
        outputs += engine.step()
    runner.close()
    assert any(step.num_preempted for step in steps)
    assert engine.num_free_blocks == NUM_BLOCKS - 1
    return [each.tokens for each in sorted(outputs, key=lambda each: each.request_id)]


@pytest.mark.parametrize("layers", [LinearLayers, SparseLayers])
def test_tokens_equal_those_of_eager(
    layers: type[LinearLayers | SparseLayers],
    mode: CompileMode,
    folder: Path,
    device: NpuDevice,
    eager_tokens: dict[type, list[tuple[int, ...]]],
    pytestconfig: pytest.Config,
) -> None:
    register()
    is_share = bool(pytestconfig.getoption("matrix_share"))
    count = NUM_IN_A_SHARE if is_share else NUM_SEQUENCES
    seed = pytestconfig.getoption("matrix_seed")
    if layers not in eager_tokens:
        eager = serve(layers, CompileMode.EAGER, folder, device, count=count, seed=seed)
        eager_tokens[layers] = eager
    tokens = serve(layers, mode, folder, device, count=count, seed=seed)
    assert len(tokens) == count
    assert tokens == eager_tokens[layers]


def test_step_may_have_more_sequences_than_every_captured_one(
    folder: Path, device: NpuDevice
) -> None:
    register()
    runner = CompiledModelRunner.load(
        folder,
        {"mode": "full", "capture_sizes": (2,), "prefill_capture_sizes": (16,)},
        device=device,
        num_blocks=6,
        max_length=MAX_LENGTH,
        max_num_sequences=2,
        make_layers=SparseLayers,
    )
    runner.capture()
    config = EngineConfig(num_blocks=6, max_length=MAX_LENGTH)
    tokens = []
    for group in ((0, 1, 2, 3, 4), (0, 1), (2, 3), (4,)):
        engine = Engine(runner, runner.model.config, config)
        prompts = [
            Request(prompt=(1 + each, 7, 9 * each), sampling=SamplingParameters(max_tokens=4))
            for each in group
        ]
        tokens.append([output.tokens for output in engine.generate(prompts)])
    runner.close()
    together, *alone = tokens
    assert together == [each for group in alone for each in group]
