"""Sizes that a budget of streams does not hold are left out; tokens stay as they are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

import cann_sim
from npu_graph_runtime import RunMode
from qwen3_engine.demonstration.mode_run import ModeSettings, differing_requests, run_mode
from qwen3_engine.demonstration.workload import mixed_arrivals
from qwen3_engine.tiny_checkpoint import TinyShape

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice


@pytest.mark.parametrize(
    ("mode", "num_segments"), [("full", 1), ("piecewise", TinyShape().num_layers + 1)]
)
def test_budget_of_streams_leaves_sizes_out_and_no_token_changes(
    mode: str, num_segments: int, checkpoint: Path, device: NpuDevice
) -> None:
    arrivals = mixed_arrivals(
        (5, 127, 1, 64),
        vocab_size=TinyShape().vocab_size,
        output_tokens=(12, 7),
        steps_between=3,
        sampled_every=4,
    )
    settings = ModeSettings(
        folder=checkpoint,
        capture_sizes=(1, 2, 3, 4),
        num_blocks=20,
        max_length=256,
        max_num_sequences=4,
        options={"capture_budget": {"streams": 2 * num_segments}},
    )
    captures = cann_sim.counters().captures

    with pytest.warns(RuntimeWarning, match=r"(?s)size 3 dropped: .* streams.*holds 2 of 4 sizes"):
        result = run_mode(mode, settings, arrivals, device=device)
    captured = cann_sim.counters().captures - captures
    both = dataclasses.replace(settings, capture_sizes=(1, 4), options={})
    expected = run_mode("eager", both, arrivals, device=device)

    assert captured == result.num_graphs == 2 * num_segments
    assert {step.padded_size for step in result.decode_steps} == {1, 4}
    assert RunMode.EAGER not in {step.run_mode for step in result.decode_steps}
    assert differing_requests(result, expected) == []
