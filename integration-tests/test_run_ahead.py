"""The host may run ahead of the device: a decode step waits for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from qwen3_engine import StepBatch
from qwen3_engine.compiled_model_runner import CompiledModelRunner

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

NUM_SEQUENCES = 3
STEPS = 24


def _batches() -> list[StepBatch]:
    """Decode batches whose lengths, positions and tokens change at every step."""
    table = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.int32)
    batches = []
    for step in range(STEPS):
        lengths = [120 + step, 1 + step, 60 + 2 * step]
        positions = torch.tensor(lengths) - 1
        blocks = table.gather(1, (positions // 128).unsqueeze(1)).squeeze(1)
        batches.append(
            StepBatch(
                input_ids=(torch.arange(NUM_SEQUENCES, dtype=torch.int32) * 7 + step) % 512,
                positions=positions,
                slot_mapping=(blocks * 128 + positions % 128).to(torch.int32),
                block_table=table,
                query_lengths=(1,) * NUM_SEQUENCES,
                kv_lengths=tuple(lengths),
            )
        )
    return batches


def _run(
    checkpoint: Path, device: NpuDevice, mode: str, *, steps_ahead: int
) -> tuple[list[torch.Tensor], int]:
    """Return the logits of all steps, and how often the host waited inside of a step."""
    runner = CompiledModelRunner.load(
        checkpoint,
        {"mode": mode, "capture_sizes": [4]},
        device=device,
        num_blocks=8,
        max_length=256,
    )
    runner.capture()
    logits: list[torch.Tensor] = []
    waits = 0
    batches = _batches()
    runner.decode(batches[0])
    for first in range(0, STEPS, steps_ahead):
        device.synchronize()
        before = cann_sim.counters()
        # The clone is a copy on the device, in the order of the stream: nothing is read back.
        logits += [runner.decode(batch).clone() for batch in batches[first : first + steps_ahead]]
        waits += (cann_sim.counters() - before).synchronisations
    device.synchronize()
    values = [value.cpu() for value in logits]
    runner.close()
    return values, waits


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_steps_issued_ahead_wait_for_nothing_and_give_the_same_values(
    mode: str, checkpoint: Path, device: NpuDevice
) -> None:
    ahead, waits = _run(checkpoint, device, mode, steps_ahead=4)
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)

    assert waits == 0
    assert len(ahead) == STEPS
    assert all(torch.equal(a, b) for a, b in zip(ahead, eager, strict=True))


def test_host_further_ahead_than_the_ring_still_gives_the_right_values(
    checkpoint: Path, device: NpuDevice
) -> None:
    ahead, _ = _run(checkpoint, device, "full", steps_ahead=STEPS)
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)

    assert all(torch.equal(a, b) for a, b in zip(ahead, eager, strict=True))
