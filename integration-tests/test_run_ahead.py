"""The host may run ahead of the device: a decode step waits for nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from npu_compile import DecodeRunner
from qwen3_engine import StepBatch
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

NUM_SEQUENCES = 3
STEPS = 24
LONG_BLOCKS = 8
SCHEDULES = 15


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


def _captured_runner(checkpoint: Path, device: NpuDevice, mode: str) -> CompiledModelRunner:
    runner = CompiledModelRunner.load(
        checkpoint,
        {"mode": mode, "capture_sizes": [4]},
        device=device,
        num_blocks=8,
        max_length=256,
    )
    runner.capture()
    return runner


def _run(
    checkpoint: Path, device: NpuDevice, mode: str, *, steps_ahead: int
) -> tuple[list[torch.Tensor], int]:
    """Return the logits of all steps, and how often the host waited inside of a step."""
    runner = _captured_runner(checkpoint, device, mode)
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


def _differing_steps(found: list[torch.Tensor], expected: list[torch.Tensor]) -> list[int]:
    pairs = zip(found, expected, strict=True)
    return [step for step, (left, right) in enumerate(pairs) if not torch.equal(left, right)]


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_steps_launched_ahead_wait_for_nothing_and_give_the_same_values(
    mode: str, checkpoint: Path, device: NpuDevice
) -> None:
    ahead, waits = _run(checkpoint, device, mode, steps_ahead=4)
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)

    assert waits == 0
    assert len(ahead) == STEPS
    assert _differing_steps(ahead, eager) == []


def test_batches_that_run_as_two_steps_give_the_same_values(
    checkpoint: Path, device: NpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Measured times would decide so where padding is dear; here every batch is split.
    monkeypatch.setattr(DecodeRunner, "split_rows", lambda _, rows: (rows - 2, 2))

    split, _ = _run(checkpoint, device, "full", steps_ahead=4)
    monkeypatch.undo()
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)

    assert _differing_steps(split, eager) == []


def test_host_further_ahead_than_the_ring_still_gives_the_right_values(
    checkpoint: Path, device: NpuDevice
) -> None:
    ahead, _ = _run(checkpoint, device, "full", steps_ahead=STEPS)
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)

    assert _differing_steps(ahead, eager) == []


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_steps_launched_ahead_give_the_right_values_under_fuzzed_schedules(
    mode: str, checkpoint: Path, device: NpuDevice
) -> None:
    eager, _ = _run(checkpoint, device, "eager", steps_ahead=1)
    runner = _captured_runner(checkpoint, device, mode)
    batches = _batches()
    differing = {}
    for seed in range(SCHEDULES):
        logits = []
        steps_ahead = (4, 8, STEPS)[seed % 3]
        for first in range(0, STEPS, steps_ahead):
            device.synchronize()
            with cann_sim.fuzzed_schedule(SCHEDULES * seed + first):
                burst = batches[first : first + steps_ahead]
                logits += [runner.decode(batch).clone() for batch in burst]
                device.synchronize()
        differing[seed] = _differing_steps([value.cpu() for value in logits], eager)
    runner.close()
    assert {seed: steps for seed, steps in differing.items() if steps} == {}


def _decode_from_the_device(
    checkpoint: Path, device: NpuDevice, mode: str, *, steps: int, on_device: bool
) -> tuple[torch.Tensor, int]:
    """Decode greedily; return the tokens ``[steps, sequences]`` and how often the host waited.

    Either a step's tokens stay on the device and are an input of the next one, or the host reads
    them. The host is never more than two steps ahead: it queries an event without waiting for it.
    """
    runner = CompiledModelRunner.load(
        checkpoint,
        {"mode": mode, "capture_sizes": [4]},
        device=device,
        num_blocks=1 + NUM_SEQUENCES * LONG_BLOCKS,
        max_length=LONG_BLOCKS * 128,
    )
    runner.capture()
    table = torch.arange(1, 1 + NUM_SEQUENCES * LONG_BLOCKS, dtype=torch.int32)
    table = table.view(NUM_SEQUENCES, LONG_BLOCKS)
    tokens = torch.arange(NUM_SEQUENCES, dtype=torch.int32)
    if on_device:
        tokens = tokens.to(device.torch_device)
    kept: list[torch.Tensor] = []
    behind = [device.create_event() for _ in range(3)]
    device.synchronize()
    before = cann_sim.counters()
    for step in range(steps):
        if step >= len(behind):
            while not behind[step % len(behind)].query():
                time.sleep(1e-4)
        batch = StepBatch(
            input_ids=tokens,
            positions=torch.full((NUM_SEQUENCES,), step),
            slot_mapping=table[:, step // 128] * 128 + step % 128,
            block_table=table,
            query_lengths=(1,) * NUM_SEQUENCES,
            kv_lengths=(step + 1,) * NUM_SEQUENCES,
        )
        tokens = runner.decode(batch).argmax(-1).to(torch.int32)
        kept.append(tokens)
        behind[step % len(behind)].record(device.current_stream())
        if not on_device:
            tokens = tokens.cpu()
    waits = (cann_sim.counters() - before).synchronisations
    device.synchronize()
    result = torch.stack(kept).cpu()
    runner.close()
    return result, waits


@pytest.mark.parametrize(("mode", "steps"), [("full", 1000), ("piecewise", 200)])
def test_tokens_that_stay_on_the_device_make_no_host_wait(
    mode: str, steps: int, checkpoint: Path, device: NpuDevice
) -> None:
    tokens, waits = _decode_from_the_device(checkpoint, device, mode, steps=steps, on_device=True)
    expected, host_waits = _decode_from_the_device(
        checkpoint, device, mode, steps=steps, on_device=False
    )

    assert waits == 0
    assert host_waits >= steps
    assert torch.equal(tokens, expected)
    assert len(torch.unique(tokens)) > NUM_SEQUENCES
