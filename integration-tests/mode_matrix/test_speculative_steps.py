"""Speculative steps whose tokens stay on the device, from one step to the next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import UpdateLane
from mode_matrix.served_model import DRAFT_STEPS, QUERY_LENGTH, Drafter, ModelSettings, TargetModel
from qwen3_engine import StepBatch
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

NUM_SEQUENCES = 3


class Speculation:
    """Drafts and verifies; a step takes one token, the verified one, so the host knows all lengths.

    Args:
        on_device: whether a step's token is read by the host, or left where the next step reads it.
    """

    def __init__(
        self, folder: Path, mode: str, *, device: NpuDevice, num_steps: int, on_device: bool
    ) -> None:
        self.device, self.on_device = device, on_device
        max_blocks = -(-(num_steps + DRAFT_STEPS) // BLOCK_SIZE)
        settings = ModelSettings(
            folder=folder,
            max_blocks=max_blocks,
            max_sequences=NUM_SEQUENCES,
            # Without fusions there is no compiler, which would take longer than the steps.
            options={"fuse": False},
        )
        self.lane = UpdateLane(device)
        self.target = TargetModel(settings, mode, device=device, lane=self.lane)
        self.drafter = Drafter(settings, mode, device=device, lane=self.lane)
        self.target.capture()
        self.drafter.capture()
        table = torch.arange(1, settings.num_blocks, dtype=torch.int32)
        self.table = table.view(NUM_SEQUENCES, max_blocks)

    def step(self, tokens: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next token of each sequence, and how many drafts are right."""
        places = torch.arange(position, position + DRAFT_STEPS)
        slots = self.table[:, places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE
        slots = slots.to(torch.int32)
        drafts = self.drafter.propose(
            tokens,
            positions=torch.full((NUM_SEQUENCES,), position),
            slots=slots,
            block_table=self.table,
        )[:, :-1]
        ids = torch.cat([tokens.to(drafts.device).unsqueeze(1), drafts], dim=1)
        batch = StepBatch(
            input_ids=ids.flatten(),
            positions=places.repeat(NUM_SEQUENCES),
            slot_mapping=slots.flatten(),
            block_table=self.table,
            query_lengths=(QUERY_LENGTH,) * NUM_SEQUENCES,
            kv_lengths=(position + QUERY_LENGTH,) * NUM_SEQUENCES,
        )
        logits = self.target.run_uniform(batch)
        best = logits.argmax(-1).to(torch.int32).view(NUM_SEQUENCES, QUERY_LENGTH)
        right = (best[:, :-1] == drafts).to(torch.int32).cumprod(1).sum(1)
        # A copy: the next replay overwrites what this one gave.
        return best[:, 0].clone(), right

    def run(self, num_steps: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Return tokens and right drafts ``[steps, sequences]``, and how often the host waited.

        The host is never more than two steps ahead: it queries an event, and does not wait for it.
        """
        tokens = torch.arange(NUM_SEQUENCES, dtype=torch.int32)
        if self.on_device:
            tokens = tokens.to(self.device.torch_device)
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        behind = [self.device.create_event() for _ in range(3)]
        self.device.synchronize()
        before = cann_sim.counters()
        for number in range(num_steps):
            event = behind[number % len(behind)]
            while number >= len(behind) and not event.query():
                time.sleep(1e-4)
            tokens, right = self.step(tokens, number)
            kept.append((tokens, right))
            event.record(self.device.current_stream())
            if not self.on_device:
                tokens = tokens.cpu()
        waits = (cann_sim.counters() - before).synchronisations
        self.device.synchronize()
        found, right = (torch.stack(each).cpu() for each in zip(*kept, strict=True))
        return found, right, waits

    def close(self) -> None:
        self.drafter.close()
        self.target.close()
        self.lane.close()


@pytest.fixture(scope="module")
def small_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    return write_tiny_checkpoint(folder, shape=TinyShape(num_layers=1), dtype=torch.bfloat16)


@pytest.mark.parametrize("mode", ["full", "breakable"])
def test_speculative_steps_from_the_device_make_no_host_wait(
    mode: str, small_checkpoint: Path, device: NpuDevice, pytestconfig: pytest.Config
) -> None:
    num_steps = pytestconfig.getoption("speculative_steps")
    captured = Speculation(
        small_checkpoint, mode, device=device, num_steps=num_steps, on_device=True
    )
    tokens, right, waits = captured.run(num_steps)
    with cann_sim.fuzzed_schedule(7):
        fuzzed, _, _ = captured.run(num_steps)
    captured.close()
    eager = Speculation(
        small_checkpoint, "eager", device=device, num_steps=num_steps, on_device=False
    )
    expected, expected_right, host_waits = eager.run(num_steps)
    eager.close()

    assert waits == 0
    assert host_waits >= num_steps
    assert torch.equal(tokens, expected)
    assert torch.equal(fuzzed, expected)
    assert torch.equal(right, expected_right)
    # The draft model is the target, so but for rounding all drafts are right.
    assert float(right.float().mean()) > 0.9 * (QUERY_LENGTH - 1)
    assert len(torch.unique(tokens)) > NUM_SEQUENCES
