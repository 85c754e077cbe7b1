"""Inputs on the device, pinned and on the CPU, as steps of the real torch_npu read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from npu_compile import DecodeRunner, InputPlace, InputSpec, compile_model
from npu_graph_runtime import GraphContext, runs_eagerly

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

SPECS = {
    "ids": InputSpec(dtype=torch.int32),
    "offsets": InputSpec(dtype=torch.float32, trailing_shape=(2,), place=InputPlace.PINNED),
    "scales": InputSpec(dtype=torch.float32, pad_value=1, place=InputPlace.CPU),
}
SIZES = (1, 4)
STEPS = 40


def _runner(device: NpuDevice, mode: str) -> DecodeRunner:
    context = GraphContext()

    @runs_eagerly(context)
    def scale(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        # A number of the host, as the lengths of attention are.
        return x * float(scales[0])

    def step(ids: torch.Tensor, offsets: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        moved = offsets.to(ids.device, non_blocking=True)
        return scale(moved + ids.float()[:, None], scales) + 1

    compiled = compile_model(
        step,
        {"mode": mode, "fuse": False, "capture_sizes": SIZES},
        device=device,
        context=context,
    )
    runner = DecodeRunner(compiled, inputs=SPECS)
    runner.capture(lambda _: None)
    return runner


def _batch(step: int) -> dict[str, torch.Tensor]:
    rows = (1, 3, 4, 5)[step % 4]
    return {
        "ids": torch.arange(step, step + rows, dtype=torch.int32),
        "offsets": torch.full((rows, 2), 0.25 * step),
        "scales": torch.full((rows,), 1.0 + step),
    }


def _expected(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (batch["offsets"] + batch["ids"].float()[:, None]) * float(batch["scales"][0]) + 1


@pytest.mark.parametrize("mode", ["breakable", "eager"])
@pytest.mark.filterwarnings("ignore:running a decode batch of 5 rows")
def test_every_step_reads_its_own_inputs_wherever_they_lie(mode: str, device: NpuDevice) -> None:
    runner = _runner(device, mode)
    batches = [_batch(step) for step in range(STEPS)]

    for seed in range(4):
        device.synchronize()
        with cann_sim.fuzzed_schedule(seed):
            found = []
            for batch in batches:
                given = {name: value.clone() for name, value in batch.items()}
                found.append(runner.run(given, {}).clone())
                for value in given.values():
                    value.fill_(99)
            device.synchronize()
        for number, (values, batch) in enumerate(zip(found, batches, strict=True)):
            assert torch.equal(values.cpu(), _expected(batch)), (seed, number)
    runner.release()


def test_capture_that_copies_an_input_of_the_cpu_is_refused() -> None:
    """Only pinned memory is read at each replay; values read from other memory would be stale."""
    program = Path(__file__).with_name("refused_input.py")

    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr
    refusal = json.loads(done.stdout.splitlines()[-1])["refusal"]
    assert "captur" in refusal
    assert "pageable host memory cannot be captured" in refusal
