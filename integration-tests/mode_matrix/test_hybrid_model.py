"""A model with linear and full attention in every mode: bitwise equal to eager."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import UpdateLane
from mode_matrix.served_hybrid import HybridModel, HybridWorkload
from mode_matrix.served_model import ModelSettings
from mode_matrix.workloads import StepKind, WorkloadResult
from npu_compile import CompileMode
from qwen3_engine import StepBatch
from qwen3_engine.qwen3.kv_cache import slot
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

# Steps that are larger than every capture size are here on purpose.
pytestmark = pytest.mark.filterwarnings(r"ignore:running a \w+ batch:RuntimeWarning")
KINDS = (StepKind.DECODE, StepKind.PREFILL, StepKind.MIXED)
# The operator for whole sequences reads host lengths here, so a graph cannot contain prefill.
WITHOUT_PREFILL_GRAPHS = {CompileMode.FULL, CompileMode.TORCHAIR, CompileMode.MEASURED}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" not in metafunc.fixturenames:
        return
    modes = [mode for mode in CompileMode if mode is not CompileMode.EAGER]
    if share := metafunc.config.getoption("matrix_share"):
        modes = Random(metafunc.config.getoption("matrix_seed")).sample(modes, min(share, 2))
    metafunc.parametrize("mode", modes, ids=[mode.value for mode in modes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    return write_tiny_checkpoint(folder, shape=TinyShape(num_layers=2), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def make(folder: Path, device: NpuDevice) -> Callable[[CompileMode], HybridModel]:
    def make(mode: CompileMode) -> HybridModel:
        sizes = {"prefill_capture_sizes": ()} if mode in WITHOUT_PREFILL_GRAPHS else {}
        settings = ModelSettings(folder=folder, options=sizes)
        return HybridModel(settings, mode.value, device=device, lane=UpdateLane(device))

    return make


def run(model: HybridModel, num_steps: int) -> dict[StepKind, WorkloadResult]:
    """Run steps of every kind; the memory of all sequences is empty before."""
    model.clear()
    return {
        kind: HybridWorkload(kind, model, settings=model.settings, seed=number).run(num_steps)
        for number, kind in enumerate(KINDS)
    }


@pytest.fixture(scope="module")
def eager(
    make: Callable[[CompileMode], HybridModel], pytestconfig: pytest.Config
) -> dict[StepKind, WorkloadResult]:
    model = make(CompileMode.EAGER)
    results = run(model, pytestconfig.getoption("matrix_steps"))
    assert_right(model, results)
    model.close()
    return results


def assert_right(model: HybridModel, results: dict[StepKind, WorkloadResult]) -> None:
    """Compare the logits of sequences, computed in steps, with those of one prefill of each."""
    for kind, result in results.items():
        texts = [text for text in result.texts if len(text.logits) > 1]
        assert texts, kind
        for text in texts[:8]:
            count = max(text.logits) + 1
            model.layer.state[text.blocks[0]].zero_()
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
            # States are rounded to bfloat16 after each step, up to 160 times a sequence.
            assert difference <= 0.1 * at_once.abs().max(), (kind, difference, at_once.abs().max())


def test_mode_equals_eager_and_keeps_states_of_others(
    mode: CompileMode,
    make: Callable[[CompileMode], HybridModel],
    eager: dict[StepKind, WorkloadResult],
    pytestconfig: pytest.Config,
) -> None:
    model = make(mode)
    before = model.poison()
    model.capture()
    for name, memory in model.kept.items():
        assert torch.equal(_bits(memory.cpu()[1:]), _bits(before[name][1:])), name
    results = run(model, pytestconfig.getoption("matrix_steps"))

    for kind, result in results.items():
        assert result.differing_steps(eager[kind]) == [], kind
    assert any(results[StepKind.DECODE].replayed) or mode is CompileMode.MEASURED
    model.close()


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8)
