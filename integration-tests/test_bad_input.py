"""User errors raise clear errors, and no work is lost."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from npu_compile import CompileConfig, DecodeRunner, InputSpec
from npu_graph_runtime import RunMode
from piecewise_split import SplittingOpError
from qwen3_engine import (
    ConfigError,
    Engine,
    EngineConfig,
    FinishReason,
    MissingCheckpointFileError,
    Request,
    RequestError,
    SamplingParameters,
    SchedulerConfig,
)
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npu_compile import DecodeStep
    from npu_graph_runtime import NpuDevice

LIMITS: dict[str, Any] = {"num_blocks": 12, "max_length": 256}


class _Steps:
    def __init__(self) -> None:
        self.seen: list[DecodeStep] = []

    def observe_decode(self, step: DecodeStep, /) -> None:
        self.seen.append(step)


def _copy(checkpoint: Path, target: Path) -> Path:
    shutil.copytree(checkpoint, target)
    return target


def _request(length: int, max_tokens: int = 6) -> Request:
    return Request(
        prompt=tuple(range(1, length + 1)), sampling=SamplingParameters(max_tokens=max_tokens)
    )


@pytest.fixture
def steps() -> _Steps:
    return _Steps()


@pytest.fixture
def runner(checkpoint: Path, device: NpuDevice, steps: _Steps) -> Iterator[CompiledModelRunner]:
    options = {"mode": "full", "capture_sizes": [1, 2]}
    runner = CompiledModelRunner.load(checkpoint, options, device=device, observer=steps, **LIMITS)
    runner.capture()
    yield runner
    runner.close()


def _engine(runner: CompiledModelRunner) -> Engine:
    config = EngineConfig(**LIMITS, scheduler=SchedulerConfig(max_num_sequences=4))
    return Engine(runner, runner.model.config, config)


def test_missing_checkpoint_file_is_named(
    checkpoint: Path, device: NpuDevice, tmp_path: Path
) -> None:
    folder = _copy(checkpoint, tmp_path / "model")
    (folder / "model.safetensors").unlink()

    with pytest.raises(MissingCheckpointFileError, match="safetensors"):
        CompiledModelRunner.load(folder, {}, device=device, **LIMITS)


def test_config_with_an_unknown_key_is_refused(
    checkpoint: Path, device: NpuDevice, tmp_path: Path
) -> None:
    folder = _copy(checkpoint, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_epsilon": 1e-5}))

    with pytest.raises(ConfigError, match=r"rms_norm_epsilon.*rms_norm_eps"):
        CompiledModelRunner.load(folder, {}, device=device, **LIMITS)


def test_compile_option_with_an_unknown_key_names_the_near_one(
    checkpoint: Path, device: NpuDevice
) -> None:
    with pytest.raises(npu_compile.ConfigError, match=r"capture_size.*capture_sizes"):
        CompiledModelRunner.load(checkpoint, {"capture_size": [1]}, device=device, **LIMITS)


def test_batch_larger_than_every_capture_size_runs_eagerly_with_one_warning(
    runner: CompiledModelRunner, steps: _Steps
) -> None:
    engine = _engine(runner)

    with pytest.warns(RuntimeWarning, match="larger than every capture size") as warned:
        outputs = engine.generate([_request(length) for length in (3, 4, 5, 6)])
    alone = _engine(runner).generate([_request(3)])

    assert len([each for each in warned if each.category is RuntimeWarning]) == 1
    assert {step.run_mode for step in steps.seen if step.num_rows > 2} == {RunMode.EAGER}
    assert all(output.finish_reason is FinishReason.LENGTH for output in outputs)
    assert outputs[0].tokens == alone[0].tokens


def test_sequence_longer_than_the_cache_is_refused_and_the_others_finish(
    runner: CompiledModelRunner,
) -> None:
    engine = _engine(runner)

    outputs = engine.generate([_request(5), _request(300), _request(7)])
    alone = _engine(runner).generate([_request(7)])

    assert outputs[1].finish_reason is FinishReason.REFUSED
    assert isinstance(outputs[1].error, RequestError)
    assert "max_length" in str(outputs[1].error)
    assert [len(output.tokens) for output in outputs] == [6, 0, 6]
    assert outputs[2].tokens == alone[0].tokens


def test_splitting_op_that_occurs_nowhere_names_near_ones(
    checkpoint: Path, device: NpuDevice
) -> None:
    runner = CompiledModelRunner.load(checkpoint, {}, device=device, **LIMITS)
    name = runner.model.attention.name
    wrong = name.replace("attention", "atention")
    config = CompileConfig.from_mapping(
        {"mode": "piecewise", "splitting_ops": [wrong], "capture_sizes": [2]}
    )
    compiled = npu_compile.compile_model(runner.model, config, device=device)
    inputs = {
        "input_ids": InputSpec(dtype=torch.int32),
        "positions": InputSpec(dtype=torch.int64),
        "slot_mapping": InputSpec(dtype=torch.int32),
        "block_table": InputSpec(dtype=torch.int32, trailing_shape=(2,)),
    }
    state = runner.model.attention.step_state

    with pytest.raises(SplittingOpError, match=name):
        DecodeRunner(compiled, inputs=inputs).capture(
            lambda size: state.load([1] * size, [0] * size)
        )

    assert len(_engine(runner).generate([_request(3)])[0].tokens) == 6
    runner.close()
