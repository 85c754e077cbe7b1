"""A capture size that the device refuses leaves the others, and the tokens, as they are."""

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


@pytest.mark.parametrize(("mode", "refused"), [("full", 2), ("piecewise", 7)])
def test_refused_size_is_left_out_and_its_batches_use_the_next_larger_graph(
    mode: str, refused: int, checkpoint: Path, device: NpuDevice
) -> None:
    """The end of the second size's capture, or of a segment of it, is refused."""
    arrivals = mixed_arrivals(
        (5, 127, 1, 64),
        vocab_size=TinyShape().vocab_size,
        output_tokens=(12, 7),
        steps_between=3,
        sampled_every=4,
    )
    settings = ModeSettings(
        folder=checkpoint,
        capture_sizes=(1, 2, 4),
        num_blocks=20,
        max_length=256,
        max_num_sequences=4,
        options={"capture_failure": "skip_size"},
    )

    with (
        cann_sim.injected_faults(f"capture_end:{refused}"),
        pytest.warns(RuntimeWarning, match="of 2 rows: .*; the size is left out, .* padded to 4"),
    ):
        result = run_mode(mode, settings, arrivals, device=device)
    without = dataclasses.replace(settings, capture_sizes=(1, 4))
    expected = run_mode("eager", without, arrivals, device=device)

    assert {step.padded_size for step in result.decode_steps} == {1, 4}
    assert RunMode.EAGER not in {step.run_mode for step in result.decode_steps}
    assert differing_requests(result, expected) == []
