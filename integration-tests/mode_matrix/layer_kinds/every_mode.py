"""Runs of a model with other layers: every kind of step, and what they must equal."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import torch

from mode_matrix.workloads import StepKind, Workload, WorkloadResult
from npu_compile import CompileMode
from qwen3_engine import StepBatch
from qwen3_engine.qwen3.kv_cache import slot

if TYPE_CHECKING:
    import pytest

    from mode_matrix.layer_kinds.kept_model import KeptModel
    from mode_matrix.served_model import ModelSettings
    from mode_matrix.workloads import Text

KINDS = (StepKind.DECODE, StepKind.PREFILL, StepKind.MIXED)


class KeptWorkload(Workload):
    """Steps of sequences that begin without memory; none of them verifies drafts."""

    def __init__(
        self, kind: StepKind, target: KeptModel, *, settings: ModelSettings, seed: int
    ) -> None:
        self._kept = target
        super().__init__(kind, target, None, settings=settings, seed=seed)

    def _new_text(self, place: int) -> Text:
        text = super()._new_text(place)
        self._kept.begin_sequence(text.blocks)
        return text


def drawn_modes(config: pytest.Config) -> list[CompileMode]:
    """Return the modes to compare with eager: all, or a share of them."""
    modes: list[CompileMode] = [mode for mode in CompileMode if mode is not CompileMode.EAGER]
    if share := config.getoption("matrix_share"):
        modes = Random(config.getoption("matrix_seed")).sample(modes, min(share, 2))
    return modes


def run_every_kind(model: KeptModel, num_steps: int) -> dict[StepKind, WorkloadResult]:
    """Run steps of every kind; the memory of all sequences is empty before."""
    model.clear()
    return {
        kind: KeptWorkload(kind, model, settings=model.settings, seed=number).run(num_steps)
        for number, kind in enumerate(KINDS)
    }


def capture_and_compare(
    model: KeptModel, eager: dict[StepKind, WorkloadResult], num_steps: int
) -> dict[StepKind, WorkloadResult]:
    """Capture, run, and require the bits of eager steps, and those of what captures must leave."""
    before = model.poison()
    model.capture()
    for name, memory in model.kept.items():
        assert torch.equal(_bits(memory.cpu()[1:]), _bits(before[name][1:])), name
    results = run_every_kind(model, num_steps)
    for kind, result in results.items():
        assert result.differing_steps(eager[kind]) == [], kind
    return results


def assert_right(
    model: KeptModel, results: dict[StepKind, WorkloadResult], *, tolerance: float
) -> None:
    """Compare the logits of sequences, computed in steps, with those of one prefill of each.

    Args:
        model: whose memory this overwrites.
        results: of its steps.
        tolerance: of each difference, as a share of the largest logit.
    """
    for kind, result in results.items():
        texts = [text for text in result.texts if len(text.logits) > 1]
        assert texts, kind
        for text in texts[:8]:
            count = max(text.logits) + 1
            model.begin_sequence(text.blocks)
            batch = StepBatch(
                input_ids=torch.tensor(text.tokens[:count], dtype=torch.int32),
                positions=torch.arange(count),
                slot_mapping=torch.tensor(
                    [slot(text.blocks, position) for position in range(count)], dtype=torch.int32
                ),
                block_table=torch.tensor([text.blocks], dtype=torch.int32),
                query_lengths=(count,),
                kv_lengths=(count,),
            )
            at_once = model.run_any(batch).cpu().float()
            positions = sorted(text.logits)
            found = torch.stack([text.logits[each] for each in positions]).float()
            difference = (found - at_once[positions]).abs().max()
            largest = at_once.abs().max()
            assert difference <= tolerance * largest, (kind, difference, largest)


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8)
