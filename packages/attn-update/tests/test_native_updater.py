"""What the native updater calls past torch, and what it leaves to torch."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from attn_update import NativeUpdater, UpdateLane, UpdatePlan
from attn_update.testing import PagedModel, assert_layers_equal, draw_lengths

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


@pytest.fixture(scope="module")
def native() -> NativeUpdater:
    return NativeUpdater.load()


@pytest.mark.parametrize("kind", ["fused_infer_attention_v1", "fused_infer_attention_v2"])
@pytest.mark.parametrize("told", [True, False])
def test_kernels_are_called_past_torch_where_the_device_tells_them(
    npu_device: NpuDevice,
    device_without_kernels: NpuDevice,
    native: NativeUpdater,
    kind: str,
    *,
    told: bool,
) -> None:
    device = npu_device if told else device_without_kernels
    random = Random(4)
    model = PagedModel(device=device, kind_name=kind)
    model.capture(2)
    num_dispatched = native.bind(model.plans[2], device, device.native_calls()).num_dispatched
    assert num_dispatched == (0 if told else model.num_layers)
    lane = UpdateLane(device, updater=native)
    for _ in range(10):
        lengths = draw_lengths(random, 2)
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
    assert lane.counters.updater_steps == 10


def test_a_tensor_of_another_type_than_torch_knows_is_left_to_torch(
    npu_device: NpuDevice, native: NativeUpdater
) -> None:
    model = PagedModel(device=npu_device, kind_name="fused_infer_attention_v2")
    model.capture(2)
    plan = UpdatePlan.compile(model.recorder, 2)
    plan.updates[1].launch["key_dtype"] = 290
    assert native.bind(plan, npu_device, npu_device.native_calls()).num_dispatched == 1
