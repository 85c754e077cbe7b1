"""An engine that finds its compilations on disk serves the very same logits, in every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from qwen3_engine import Engine, EngineConfig, Request, SamplingParameters, SchedulerConfig
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice
    from qwen3_engine import RequestOutput

NUM_BLOCKS = 12


def _serve(
    checkpoint: Path, device: NpuDevice, options: dict[str, Any]
) -> tuple[list[RequestOutput], list[str]]:
    """Return the answers to some requests, and the cache section of the reports."""
    runner = CompiledModelRunner.load(
        checkpoint, options, device=device, num_blocks=NUM_BLOCKS, max_length=256
    )
    runner.capture()
    config = EngineConfig(
        num_blocks=NUM_BLOCKS,
        max_length=256,
        scheduler=SchedulerConfig(max_num_sequences=4),
        record_logits=True,
    )
    engine = Engine(runner, runner.model.config, config)
    for length in (5, 127, 40):
        prompt = tuple(range(1, 1 + length))
        engine.add_request(Request(prompt=prompt, sampling=SamplingParameters(max_tokens=6)))
    outputs: list[RequestOutput] = []
    while engine.has_work:
        outputs += engine.step()
    said = [str(report.cache) for report in runner.compiled.reports]
    runner.close()
    return sorted(outputs, key=lambda output: output.request_id), said


@pytest.mark.parametrize("mode", ["eager", "full_decode_and_piecewise"])
def test_engine_from_the_cache_serves_the_logits_of_the_one_that_compiled(
    checkpoint: Path, device: NpuDevice, tmp_path: Path, mode: str
) -> None:
    options = {"mode": mode, "capture_sizes": [2, 4], "cache_folder": str(tmp_path)}

    cold, compiled = _serve(checkpoint, device, options)
    found, cached = _serve(checkpoint, device, options)

    assert all(said.startswith("compiled, and put into the compile cache") for said in compiled)
    assert all(said.startswith("from the compile cache") for said in cached)
    assert len(cached) == len(compiled) >= 1
    for one, other in zip(cold, found, strict=True):
        assert one.tokens == other.tokens
        assert one.logits is not None
        assert other.logits is not None
        assert torch.equal(torch.stack([*one.logits]), torch.stack([*other.logits]))
