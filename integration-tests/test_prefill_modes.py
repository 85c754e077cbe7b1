"""Prefill in segments or as one graph: every mode matches eager and generates the right tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from npu_graph_runtime import RunMode
from qwen3_engine import ReferenceModel, compare_with_reference
from qwen3_engine.demonstration.mode_run import (
    ModeResult,
    ModeSettings,
    differing_requests,
    run_mode,
)
from qwen3_engine.demonstration.workload import mixed_arrivals
from qwen3_engine.tiny_checkpoint import TinyShape

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice
    from qwen3_engine.demonstration.workload import Arrival

SHAPE = TinyShape()
MODES = (
    "eager",
    "full",
    "piecewise",
    "full_decode_and_piecewise",
    "breakable",
    "torchair",
    "measured",
)
DECODES = {
    "eager": {RunMode.EAGER},
    "full": {RunMode.FULL},
    "piecewise": {RunMode.BREAKABLE},
    "full_decode_and_piecewise": {RunMode.FULL},
    "breakable": {RunMode.BREAKABLE},
    "torchair": {RunMode.FULL},
}
# What takes long to compile, by dtype, is left to --every-mode; test_measured_mode has `measured`.
LEFT_OUT = {"bfloat16": {"measured"}, "float16": {"torchair", "measured"}}
# Largest first; the last prompt fits none of them and runs eagerly.
PREFILL_SIZES = (192, 64, 16)
PROMPTS = (5, 60, 130, 1, 16, 17, 190, 33, 200)


def _arrivals() -> tuple[Arrival, ...]:
    return mixed_arrivals(
        PROMPTS,
        vocab_size=SHAPE.vocab_size,
        output_tokens=(12, 20, 8),
        steps_between=3,
        sampled_every=4,
    )


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def folder(request: pytest.FixtureRequest, checkpoint: Path, half_checkpoint: Path) -> Path:
    return checkpoint if request.param == "bfloat16" else half_checkpoint


@pytest.fixture(scope="module")
def modes(folder: Path, request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.config.getoption("--every-mode", default=False):
        return MODES
    dtype = "float16" if "half" in folder.name else "bfloat16"
    return tuple(mode for mode in MODES if mode not in LEFT_OUT[dtype])


@pytest.fixture(scope="module")
def results(folder: Path, device: NpuDevice, modes: tuple[str, ...]) -> dict[str, ModeResult]:
    settings = ModeSettings(
        folder=folder,
        capture_sizes=(1, 2, 4),
        prefill_capture_sizes=PREFILL_SIZES,
        num_blocks=20,
        max_length=256,
        max_num_sequences=4,
    )
    with pytest.warns(RuntimeWarning, match=r"prefill batch of \d+ rows"):
        return {
            mode: run_mode(
                mode,
                settings,
                _arrivals(),
                device=device,
                count_launches=lambda: cann_sim.counters().launches,
            )
            for mode in modes
        }


def test_every_mode_gives_the_logits_of_eager_bitwise(results: dict[str, ModeResult]) -> None:
    for mode, result in results.items():
        assert differing_requests(result, results["eager"]) == [], mode


def test_every_mode_decodes_as_it_says(results: dict[str, ModeResult]) -> None:
    for mode, result in results.items():
        found = {step.run_mode for step in result.decode_steps}
        assert found == DECODES.get(mode, found), mode


def test_every_prefill_and_decode_size_is_captured_whole_or_in_segments(
    results: dict[str, ModeResult],
) -> None:
    segments = SHAPE.num_layers + 1
    prefill = len(PREFILL_SIZES) * segments

    expected = {
        "eager": 0,
        "full": len(PREFILL_SIZES) + 3,
        "piecewise": prefill + 3 * segments,
        "full_decode_and_piecewise": prefill + 3,
        "breakable": prefill + 3 * segments,
        "torchair": len(PREFILL_SIZES) + 3,
    }
    for mode, result in results.items():
        assert result.num_graphs == expected.get(mode, result.num_graphs), mode


def test_every_mode_agrees_with_transformers(results: dict[str, ModeResult], folder: Path) -> None:
    reference = ReferenceModel(folder)
    greedy = [arrival.request.sampling.temperature == 0 for arrival in _arrivals()]
    dtype = torch.bfloat16 if "half" not in folder.name else torch.float16
    for result in results.values():
        outputs = [out for out, is_greedy in zip(result.outputs, greedy, strict=True) if is_greedy]
        verdict = compare_with_reference(
            outputs, reference, dtype=dtype, num_layers=SHAPE.num_layers
        )
        assert verdict.agrees, f"{result.mode}: {verdict}"
