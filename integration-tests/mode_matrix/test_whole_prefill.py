"""Prefill and mixed batches as one graph: what they give, and the blocks that they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import UpdateLane
from mode_matrix.served_model import ModelSettings, TargetModel
from mode_matrix.workloads import StepKind, Workload, WorkloadResult

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from npu_graph_runtime import NpuDevice
    from qwen3_engine import StepBatch

PADDING_BLOCK = 0
PREFILL_SIZES = (32, 128)  # The second holds five of the longest chunks.


class GuardedTarget:
    """Runs steps of a target model; no block of a sequence outside of a step may change by it."""

    def __init__(self, target: TargetModel) -> None:
        self._target = target
        self.num_waits: list[int] = []
        self.replayed = target.replayed

    def run_any(self, batch: StepBatch) -> torch.Tensor:
        own = {PADDING_BLOCK, *batch.block_table.flatten().tolist()}
        before = self.blocks(but_for=own)
        self._target.device.synchronize()
        waited = cann_sim.counters().synchronisations
        logits = self._target.run_any(batch)
        self.num_waits.append(cann_sim.counters().synchronisations - waited)
        self.require_same(before, self.blocks(but_for=own))
        return logits

    def poison(self) -> None:
        """Fill the caches with what would spoil every sequence that it is read for."""
        for cache in self._caches():
            cache.fill_(float("nan"))

    def blocks(self, *, but_for: set[int]) -> list[torch.Tensor]:
        """Return the bits of the blocks of all caches, copied."""
        return [
            cache.cpu().view(torch.int16)[[n for n in range(len(cache)) if n not in but_for]]
            for cache in self._caches()
        ]

    @staticmethod
    def require_same(before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
        assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))

    def _caches(self) -> list[torch.Tensor]:
        layers: Any = self._target.model.layers
        return [cache for layer in layers for cache in (layer.key_cache, layer.value_cache)]


def _steps(
    mode: str, kind: StepKind, folder: Path, device: NpuDevice, num_steps: int
) -> tuple[WorkloadResult, GuardedTarget]:
    settings = ModelSettings(
        folder=folder, options={"fuse": False, "prefill_capture_sizes": PREFILL_SIZES}
    )
    lane = UpdateLane(device)
    target = TargetModel(settings, mode, device=device, lane=lane)
    guarded = GuardedTarget(target)
    guarded.poison()
    poisoned = guarded.blocks(but_for={PADDING_BLOCK})
    target.capture()
    guarded.require_same(poisoned, guarded.blocks(but_for={PADDING_BLOCK}))
    workload = Workload(kind, guarded, None, settings=settings, seed=7)  # type: ignore[arg-type]
    result = workload.run(num_steps)
    target.close()
    lane.close()
    return result, guarded


@pytest.mark.parametrize("kind", [StepKind.PREFILL, StepKind.MIXED])
def test_one_replay_equals_eager_and_touches_no_other_sequence(
    kind: StepKind, checkpoint: Path, device: NpuDevice, pytestconfig: pytest.Config
) -> None:
    num_steps = pytestconfig.getoption("matrix_steps")
    found, guarded = _steps("full", kind, checkpoint, device, num_steps)
    expected, _ = _steps("eager", kind, checkpoint, device, num_steps)

    assert found.replayed == [True] * num_steps
    assert len(set(found.num_sequences)) > 2
    assert set(guarded.num_waits) == {0}
    for (left,), (right,) in zip(found.steps, expected.steps, strict=True):
        assert bool(torch.isfinite(left).all())
        assert torch.equal(left, right)
