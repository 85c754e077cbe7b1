"""A model with linear and full attention in every mode: bitwise equal to eager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import UpdateLane
from mode_matrix.layer_kinds.every_mode import (
    capture_and_compare,
)
from mode_matrix.layer_kinds.served_hybrid import HybridModel
from mode_matrix.served_model import ModelSettings
from mode_matrix.workloads import StepKind
from npu_compile import CompileMode
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mode_matrix.workloads import WorkloadResult
    from npu_graph_runtime import NpuDevice

# Steps that are larger than every capture size are here on purpose.
pytestmark = pytest.mark.filterwarnings(r"ignore:running a \w+ batch:RuntimeWarning")
# The operator for whole sequences reads host lengths here, so a graph cannot contain prefill.
WITHOUT_PREFILL_GRAPHS = {CompileMode.FULL, CompileMode.TORCHAIR, CompileMode.MEASURED}
# States are rounded to bfloat16 after each step, up to 160 times a sequence.
TOLERANCE = 0.1


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


def test_mode_equals_eager_and_keeps_states_of_others(
    mode: CompileMode,
    make: Callable[[CompileMode], HybridModel],
    eager: dict[StepKind, WorkloadResult],
    pytestconfig: pytest.Config,
) -> None:
    model = make(mode)
    results = capture_and_compare(model, eager, pytestconfig.getoption("matrix_steps"))
    assert any(results[StepKind.DECODE].replayed) or mode is CompileMode.MEASURED
    model.close()
