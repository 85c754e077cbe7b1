"""Which plans the kernel updater binds; the others are updated operator by operator."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from attn_update import KernelUpdater, UpdateLane, UpdatePlan
from attn_update.testing import PagedModel, assert_layers_equal, draw_lengths

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


@pytest.mark.parametrize("told", [True, False])
def test_a_plan_is_bound_where_the_device_tells_its_kernels(
    npu_device: NpuDevice, device_without_kernels: NpuDevice, *, told: bool
) -> None:
    device = npu_device if told else device_without_kernels
    random = Random(4)
    model = PagedModel(device=device)
    model.capture(2)
    lane = UpdateLane(device, updater=KernelUpdater())
    for _ in range(10):
        drawn = [draw_lengths(random, 2) for _ in range(4)]
        burst = [(lengths, model.step(lane, 2, lengths)) for lengths in drawn]
        for lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(2, lengths))
    assert lane.counters.updater_steps == (40 if told else 0)


def test_a_plan_with_a_tensor_of_another_type_than_torch_knows_is_not_bound(
    npu_device: NpuDevice,
) -> None:
    model = PagedModel(device=npu_device, kind_name="fused_infer_attention_v2")
    model.capture(2)
    calls = npu_device.native_calls()
    plan = UpdatePlan.compile(model.recorder, 2)
    assert KernelUpdater().bind(plan, npu_device, calls) is not None
    plan.updates[1].launch["key_dtype"] = 0
    assert KernelUpdater().bind(plan, npu_device, calls) is None
