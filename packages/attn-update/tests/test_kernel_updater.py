"""Which plans the kernel updater binds; the others are updated operator by operator."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import PlanError, UpdateLane, UpdatePlan
from attn_update.issuing.kernels.kernel_updater import KernelUpdater
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import NpuDevice


@pytest.mark.parametrize("told", [True, False])
def test_a_plan_is_bound_if_the_device_exposes_its_kernels(
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
    assert isinstance(lane.updater, KernelUpdater)
    reason = (
        "layer 'layers.0': the device does not tell aclnnFusedInferAttentionScoreV3GetWorkspaceSize"
    )
    assert lane.unbound_reason(model.plans[2]) == (None if told else reason)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("key_dtype", 0, "'key_dtype' gives a tensor another data type than torch's"),
        ("workspace", None, "it was captured without a workspace"),
    ],
)
def test_a_launch_that_is_more_than_its_kernel_is_not_bound(
    npu_device: NpuDevice, name: str, value: object, reason: str
) -> None:
    model = PagedModel(device=npu_device, kind_name="fused_infer_attention_v2")
    model.capture(2)
    calls = npu_device.native_calls()
    plan = UpdatePlan.compile(model.recorder, 2)
    assert not isinstance(KernelUpdater().bind(plan, npu_device, calls), str)
    plan.updates[1].launch[name] = value
    bound = KernelUpdater().bind(plan, npu_device, calls)
    assert bound == f"layer 'layers.1': {reason}"


def test_a_plan_of_another_kind_says_that_no_kernel_is_known(npu_device: NpuDevice) -> None:
    model = CaseModel(device=npu_device, case=find_case("paged attention"), kinds=all_kinds())
    model.capture(*model.case.keys)
    lane = UpdateLane(npu_device, updater=KernelUpdater())
    plan, parameters, replay = model.prepared(model.draw(Random(1), model.case.keys[0]))
    lane.run(plan, parameters, replay)
    assert "no kernel of" in str(lane.unbound_reason(plan))
    assert (lane.counters.steps, lane.counters.updater_steps) == (1, 0)


@pytest.mark.parametrize("name", ["aclnnFusedInferAttentionScoreV3", "aclCreateIntArray"])
def test_a_device_that_lacks_a_function_is_updated_without_it(
    npu_device: NpuDevice, device_lacking: Callable[[str], NpuDevice], name: str
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(device_lacking(name), updater=KernelUpdater())
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    assert f"the device does not tell {name}" in str(lane.unbound_reason(model.plans[2]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, device="meta"),
        lambda: torch.ones(3),
        lambda: torch.empty(4, dtype=torch.uint8, device="npu").view(torch.bits8),
        lambda: torch.eye(3).to_sparse(),
        lambda: 5,
    ],
    ids=["meta", "cpu", "bits8", "sparse", "no tensor"],
)
def test_a_tensor_that_torch_npu_cannot_describe_is_an_error_and_not_the_end_of_the_process(
    npu_device: NpuDevice, make: Callable[[], object]
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=KernelUpdater())
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[1].launch["atten_mask"] = make()
    with pytest.raises(PlanError, match="argument 'atten_mask' takes tensor, found"):
        lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also below a parent that ignores it, as a background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_inside_an_update_leaves_none_open(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device, num_layers=8)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=KernelUpdater())
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    owner: Any = model.plans[2].records.owner
    launches = owner.bound.launches
    untouched = launches._launches[3]

    def interrupt(*arguments: object) -> int:
        # As Ctrl-C does, between two calls of an update that is open.
        status: int = untouched.prepare(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return status

    launches._launches[3] = untouched._replace(prepare=interrupt)
    with pytest.raises(KeyboardInterrupt):
        lane.run(model.plans[2], model.parameters(2, [7, 8]), model.graphs[2].replay)
    launches._launches[3] = untouched
    for lengths in ([7, 8], [9, 10], [11, 12]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
