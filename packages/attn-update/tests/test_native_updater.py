"""The launches that the native updater calls without torch, and those it leaves to torch."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_update import StepParameters, UpdateLane, UpdatePlan
from attn_update.issuing.native.native_updater import NativeUpdater
from attn_update.kinds import LengthRule
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import all_kinds

if TYPE_CHECKING:
    from attn_update.issuing.updater import Changes
    from attn_update.planning.update_plan import CheckedStep
    from npu_graph_runtime import NpuDevice


@pytest.fixture(scope="module")
def native() -> NativeUpdater:
    return NativeUpdater.load()


@pytest.mark.parametrize("kind", ["fused_infer_attention_v1", "fused_infer_attention_v2"])
@pytest.mark.parametrize("told", [True, False])
def test_kernels_are_called_without_torch_if_the_device_exposes_them(
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


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("total", [None, 6])
@pytest.mark.parametrize("maximum", [None, 9])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_launches_take_exactly_the_lengths_that_keep_their_rule(
    npu_device: NpuDevice,
    native: NativeUpdater,
    *,
    count: int,
    cumulative: bool,
    total: int | None,
    maximum: int | None,
) -> None:
    rule = LengthRule(
        count=count, cumulative=cumulative, total=total, maximum=maximum, bound="a test"
    )
    model = PagedModel(device=npu_device)
    model.capture(2)
    ruled: Any = SimpleNamespace(
        updates=model.plans[2].updates,
        step_rules=lambda: [{"actual_seq_lengths_kv": rule}],
        group_of=lambda _: "default",
    )
    launches = native.bind(ruled, npu_device, npu_device.native_calls())
    lane = UpdateLane(npu_device)
    model.step(lane, 2, [7, 8])

    def take(lengths: object) -> Changes | None:
        group: Any = {"default": {"actual_seq_lengths_kv": lengths}}
        return launches.take(StepParameters(key=2, groups=group))

    assert take([7] * count) is None, "the launches were never given any"
    stream = npu_device.create_direct_stream()
    npu_device.synchronize()
    with npu_device.use_stream(stream):
        launches.run([{"actual_seq_lengths_kv": [9, 9]}], npu_device.stream_address(stream))

    @settings(deadline=None, max_examples=150)
    @given(
        lengths=st.lists(st.integers(-1, 10), min_size=max(count - 1, 0), max_size=count + 1),
        odd=st.none() | st.integers() | st.booleans() | st.floats(),
        is_sorted=st.booleans(),
    )
    def check(*, lengths: list[object], odd: object, is_sorted: bool) -> None:
        lengths = sorted(lengths) if is_sorted else lengths  # type: ignore[type-var]
        if odd is not None:
            lengths[-1:] = [odd]
        given: Any = lengths
        # Lengths of more than 64 bits are left to Python.
        is_long = any(type(length) is int and abs(length) >= 2**63 for length in lengths)
        assert (take(given) is not None) == (rule.fits(given) and not is_long)

    check()
    assert take(tuple([7] * count)) is None
    extra: Any = {"default": {"actual_seq_lengths_kv": [7] * count, "actual_seq_lengths": [1, 2]}}
    assert launches.take(StepParameters(key=2, groups=extra)) is None
    assert launches.take(StepParameters(key=2, groups={})) is None
    assert launches.take(StepParameters(key=2, groups={"other": extra["default"]})) is None


@pytest.mark.parametrize("told", [True, False])
def test_a_rebound_block_table_is_checked_and_taken_without_python(
    npu_device: NpuDevice,
    device_without_kernels: NpuDevice,
    native: NativeUpdater,
    monkeypatch: pytest.MonkeyPatch,
    *,
    told: bool,
) -> None:
    device = npu_device if told else device_without_kernels
    random = Random(8)
    model = PagedModel(
        device=device, kind_name="fused_infer_attention_v1_rebound", kinds=all_kinds()
    )
    model.capture(2)
    lane = UpdateLane(device, updater=native)
    plan, check = model.plans[2], model.plans[2].check
    checked: list[StepParameters] = []

    def count(step: StepParameters) -> CheckedStep:
        checked.append(step)
        return check(step)

    monkeypatch.setattr(plan, "check", count)
    tables = [model.inputs[2]["block_table"], model.inputs[2]["block_table"].flip(0)]
    for _ in range(12):
        lengths, table = draw_lengths(random, 2), random.choice(tables)
        group: Any = {**model.lengths(2, lengths), "block_table": table[:]}
        lane.run(plan, StepParameters(key=2, groups={"default": group}), model.graphs[2].replay)
        outputs = [out.clone() for out in model.outputs[2]]
        model.inputs[2]["block_table"] = table
        assert_layers_equal(outputs, model.eager(2, lengths))
    # Without kernels torch gets the lengths again, which it does not share between launches.
    assert len(checked) == (1 if told else 12)
