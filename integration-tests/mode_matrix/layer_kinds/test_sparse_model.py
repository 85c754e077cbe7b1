"""A model with sparse attention, whose metadata is made on the device: bitwise equal to eager."""

from __future__ import annotations

from contextlib import nullcontext
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
from mode_matrix.layer_kinds.served_sparse import ProducingDevice, ProducingLane, SparseModel
from mode_matrix.served_model import KEYS, QUERIES, ModelSettings
from mode_matrix.workloads import StepKind
from npu_compile import CompileMode
from npu_graph_runtime.errors import ReplayRefusedError
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attn_update import StepParameters, UpdatePlan
    from attn_update.kinds import Kind
    from mode_matrix.workloads import WorkloadResult
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
        own = ProducingDevice(device.torch_device.index)
        settings = ModelSettings(folder=folder)
        return SparseModel(settings, mode.value, device=own, lane=ProducingLane(own))

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


class LateLane(ProducingLane):
    """Runs no producer in front of a replay."""

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], Any] | None = None,
    ) -> Any:
        return UpdateLane.run(self, plan, replace(parameters, groups={}), replay)


class LateModel(SparseModel):
    """Its lengths are made in time; its metadata is not, from a step on.

    Its graphs do not wait for producers, and its kind of attention does not ask for them.
    """

    is_late = False

    @property
    def kinds(self) -> dict[str, Kind]:
        kind = super().kinds["sparse_flash_mla"]
        assert isinstance(kind, DeviceLengthAttention)
        return {**super().kinds, "sparse_flash_mla": replace(kind, metadata=())}

    def make_metadata(self, lengths: Mapping[str, Any]) -> None:
        if not self.is_late:
            super().make_metadata(lengths)
            return
        first, *_ = self.metadata.producers(len(lengths[KEYS]))
        self.metadata.lane.run_now([first], (lengths[QUERIES], lengths[KEYS]))


class LateReplays(ProducingLane):
    """Makes the lengths of a replay in front of it, and nothing else."""

    model: LateModel

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], Any] | None = None,
    ) -> Any:
        self.model.is_late = True
        self.model.make_metadata(parameters.groups["default"])
        return UpdateLane.run(self, plan, replace(parameters, groups={}), replay)


def test_graphs_without_their_producers_are_refused(folder: Path, device: NpuDevice) -> None:
    register()
    own = ProducingDevice(device.torch_device.index)
    settings = ModelSettings(folder=folder, options={"prefill_capture_sizes": ()})
    model = SparseModel(settings, "full", device=own, lane=LateLane(own))
    recording, own.around = own.around, nullcontext
    with pytest.raises(RecordingError, match="'metadata', which a producer makes in every step"):
        model.capture()
    own.around = recording
    model.capture()
    with pytest.raises(ReplayRefusedError, match="its producers have not run for this replay"):
        KeptWorkload(StepKind.DECODE, model, settings=settings, seed=0).run(1)
    model.close()


@pytest.mark.parametrize("late_mode", ["eager", "full"])
def test_metadata_that_is_made_behind_its_layer_fails_by_name(
    late_mode: str, folder: Path, device: NpuDevice
) -> None:
    register()
    own = ProducingDevice(device.torch_device.index)
    settings = ModelSettings(folder=folder, options={"prefill_capture_sizes": ()})
    lane = LateReplays(own)
    model = lane.model = LateModel(settings, late_mode, device=own, lane=lane)
    own.around = nullcontext
    model.capture()
    workload = KeptWorkload(StepKind.DECODE, model, settings=settings, seed=0)
    if late_mode == "eager":
        workload.run(1)
        model.is_late = True
    try:
        with pytest.raises(RuntimeError, match="5070"):
            workload.run(2)
        with pytest.raises(RuntimeError, match="its metadata was made for other "):
            torch.npu.synchronize()  # type: ignore[attr-defined]
    finally:
        cann_sim.restart_devices()
    model.close()
