"""A model with sparse attention, whose metadata is made on the device: bitwise equal to eager."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import RecordingError, UpdateLane
from attn_update.kinds import DeviceLengthAttention
from cann_sim.engine_kernels.vllm_ascend_sparse import register
from mode_matrix.layer_kinds.every_mode import (
    KeptWorkload,
    capture_and_compare,
)
from mode_matrix.layer_kinds.served_sparse import SparseModel
from mode_matrix.served_model import KEYS, ModelSettings
from mode_matrix.workloads import StepKind
from npu_compile import CompileMode
from npu_graph_runtime.errors import ReplayRefusedError
from qwen3_engine.layer_kinds.step_metadata import StepMetadata
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attn_update.kinds import Kind
    from attn_update.producers import Producer
    from mode_matrix.workloads import WorkloadResult
    from npu_compile import StepSize
    from npu_graph_runtime import NpuDevice

# Steps that are larger than every capture size are here on purpose.
pytestmark = pytest.mark.filterwarnings(r"ignore:running a \w+ batch:RuntimeWarning")
# Sums of other shapes are rounded in another order, and may change which keys are chosen.
TOLERANCE = 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sparse")
    return write_tiny_checkpoint(folder, shape=TinyShape(num_layers=3), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def make(folder: Path, device: NpuDevice) -> Callable[[CompileMode], SparseModel]:
    register()

    def make(mode: CompileMode) -> SparseModel:
        settings = ModelSettings(folder=folder)
        return SparseModel(settings, mode.value, device=device, lane=UpdateLane(device))

    return make


def test_mode_equals_eager_and_keeps_caches_of_others(
    mode: CompileMode,
    make: Callable[[CompileMode], SparseModel],
    eager: dict[StepKind, WorkloadResult],
    pytestconfig: pytest.Config,
) -> None:
    model = make(mode)
    results = capture_and_compare(model, eager, pytestconfig.getoption("matrix_steps"))
    for result in results.values():
        assert any(result.replayed) or mode is CompileMode.MEASURED
    model.close()


def test_producers_inside_of_graphs_equal_eager(
    folder: Path,
    device: NpuDevice,
    eager: dict[StepKind, WorkloadResult],
    pytestconfig: pytest.Config,
) -> None:
    settings = ModelSettings(folder=folder)
    model = SparseModel(settings, "full", device=device, lane=UpdateLane(device), captured=True)
    results = capture_and_compare(model, eager, pytestconfig.getoption("matrix_steps"))
    for result in results.values():
        assert any(result.replayed)
    model.close()


class UnproducedModel(SparseModel):
    """Makes its metadata where it shows lengths, which graphs do not see."""

    producers = None

    def load(self, lengths: Mapping[str, Any], *, is_padded: bool = False) -> None:
        super().load(lengths, is_padded=is_padded)
        made = self.metadata.producers(len(lengths[KEYS]))
        self.metadata.lane.run_now(made, {"default": lengths})


def test_graphs_without_their_producers_are_refused(folder: Path, device: NpuDevice) -> None:
    register()
    settings = ModelSettings(folder=folder, options={"prefill_capture_sizes": ()})
    model = UnproducedModel(settings, "full", device=device, lane=UpdateLane(device))
    with pytest.raises(RecordingError, match="'metadata', which a producer makes in every step"):
        model.capture()
    model.close()


def test_graphs_replayed_without_their_producers_are_refused(
    folder: Path, device: NpuDevice
) -> None:
    register()
    settings = ModelSettings(folder=folder, options={"prefill_capture_sizes": ()})
    model = SparseModel(settings, "full", device=device, lane=UpdateLane(device))
    model.capture()
    (graphed,) = model.compiled.graphed_callables
    with pytest.raises(ReplayRefusedError, match="its producers have not run for this replay"):
        graphed.graph_of(graphed.captured_keys[0]).replay()
    model.close()


class LateMetadata(StepMetadata):
    """Its lengths are made in time. Its metadata is made in no graph and, from a step on, nowhere.

    Attributes:
        is_late: whether such a step has come.
    """

    is_late = False

    def producers(self, sequences: int) -> list[Producer]:
        made = super().producers(sequences)
        return made[:1] if self.is_late or self.lane.device.is_capturing() else made

    def needs(
        self, size: StepSize, lengths: Mapping[str, Mapping[str, Any]], *, is_whole: bool
    ) -> dict[str, dict[str, int]]:
        return {"lengths": super().needs(size, lengths, is_whole=is_whole)["lengths"]}


class LateModel(SparseModel):
    """Its kind of attention does not ask for producers of its metadata."""

    metadata_type = LateMetadata

    @property
    def kinds(self) -> dict[str, Kind]:
        kind = super().kinds["sparse_flash_mla"]
        assert isinstance(kind, DeviceLengthAttention)
        return {**super().kinds, "sparse_flash_mla": replace(kind, metadata=())}


@pytest.mark.parametrize("late_mode", ["eager", "full"])
def test_metadata_that_is_made_behind_its_layer_fails_by_name(
    late_mode: str, folder: Path, device: NpuDevice
) -> None:
    register()
    settings = ModelSettings(folder=folder, options={"prefill_capture_sizes": ()})
    model = LateModel(settings, late_mode, device=device, lane=UpdateLane(device))
    model.capture()
    workload = KeptWorkload(StepKind.DECODE, model, settings=settings, seed=0)
    if late_mode == "eager":
        workload.run(1)
        assert isinstance(model.metadata, LateMetadata)
        model.metadata.is_late = True
    try:
        with pytest.raises(RuntimeError, match="5070"):
            workload.run(2)
        with pytest.raises(RuntimeError, match="its metadata was made for other "):
            torch.npu.synchronize()  # type: ignore[attr-defined]
    finally:
        cann_sim.restart_devices()
    model.close()
