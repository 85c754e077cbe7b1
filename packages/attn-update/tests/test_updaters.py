"""Updaters on simulated CANN: the values of operators called one by one, and failures."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import cann_sim
from attn_update import (
    LaneError,
    Lengths,
    PlanError,
    StepParameterError,
    StepParameters,
    UpdateError,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds import FIA_V1, FusedInferAttention
from npu_graph_runtime import FakeDevice
from npu_graph_testing.attention import PagedModel, assert_layers_equal, draw_lengths
from npu_graph_testing.attention.cases import all_kinds
from npu_graph_testing.attention.paged_model import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attn_update import UpdaterChoice
    from attn_update.issuing.updater import Updater
    from conftest import CheckBurst, RefusingEvents
    from npu_graph_runtime import NpuDevice


@pytest.mark.parametrize("kind", ["fused_infer_attention_v1", "fused_infer_attention_v2"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_steps_with_the_host_ahead_equal_the_eager_operator(
    npu_device: NpuDevice,
    updater: Updater,
    check_burst: CheckBurst,
    dtype: torch.dtype,
    kind: str,
) -> None:
    random = Random(1)
    models = [PagedModel(device=npu_device, dtype=dtype, kind_name=kind, seed=s) for s in (0, 100)]
    for model in models:
        model.capture(2, 4)
    lane = UpdateLane(npu_device, updater=updater)
    assert lane.updater is updater

    for _ in range(20):
        check_burst(lane, models, random)
    assert lane.counters.updater_steps == lane.counters.steps == 80


def test_steps_take_a_rebound_block_table(npu_device: NpuDevice, updater: Updater) -> None:
    random = Random(2)
    model = PagedModel(
        device=npu_device, kind_name="fused_infer_attention_v1_rebound", kinds=all_kinds()
    )
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    for _ in range(10):
        table = torch.tensor([[random.randrange(8) for _ in range(COLUMNS)] for _ in range(2)])
        lengths = draw_lengths(random, 2)
        device_table = table.int().to("npu")
        group: dict[str, Lengths] = {**model.lengths(2, lengths), "block_table": device_table}
        lane.run(
            model.plans[2], StepParameters(key=2, groups={"default": group}), model.graphs[2].replay
        )
        outputs = [out.clone() for out in model.outputs[2]]
        model.inputs[2]["block_table"] = device_table
        assert_layers_equal(outputs, model.eager(2, lengths))


def rebound_step(model: PagedModel, lengths: list[int], table: torch.Tensor) -> StepParameters:
    group: dict[str, Lengths] = {**model.lengths(2, lengths), "block_table": table}
    return StepParameters(key=2, groups={"default": group})


def test_a_new_view_of_the_same_block_table_is_no_change(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    model = PagedModel(
        device=npu_device, kind_name="fused_infer_attention_v1_rebound", kinds=all_kinds()
    )
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater)
    table = model.inputs[2]["block_table"]
    for _ in range(4):
        step = rebound_step(model, [7, 8], table.view(table.shape))
        lane.run(model.plans[2], step, model.graphs[2].replay)
    assert (lane.counters.updates, lane.counters.skipped) == (3, 9)
    for shift in (1, 2):
        # Two tables live at once, so each has memory of its own.
        other = ((table.cpu() + shift) % 8).to(table.device)
        model.inputs[2]["block_table"] = other
        lane.run(model.plans[2], rebound_step(model, [30, 8], other), model.graphs[2].replay)
        outputs = [out.clone() for out in model.outputs[2]]
        assert_layers_equal(outputs, model.eager(2, [30, 8]))
    assert lane.counters.updates == 9


def test_a_rebound_block_table_of_another_form_is_refused(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    model = PagedModel(
        device=npu_device, kind_name="fused_infer_attention_v1_rebound", kinds=all_kinds()
    )
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater)
    table = model.inputs[2]["block_table"]
    for _ in range(2):
        lane.run(model.plans[2], rebound_step(model, [7, 8], table), model.graphs[2].replay)
    before = cann_sim.counters().replays
    for wrong in (table[:1], table[:, :2], table.long(), table.cpu()):
        with pytest.raises(StepParameterError, match="block_table"):
            lane.run(model.plans[2], rebound_step(model, [7, 8], wrong), model.graphs[2].replay)
    assert cann_sim.counters().replays == before
    lane.run(model.plans[2], rebound_step(model, [9, 4], table), model.graphs[2].replay)
    assert_layers_equal(model.outputs[2], model.eager(2, [9, 4]))


@dataclass(frozen=True, kw_only=True)
class _ReplacedKeys(FusedInferAttention):
    """Replaces key lengths, after the usual checks, by the result of `replace`."""

    replace: Callable[[list[int]], object]

    def prepare(
        self, values: Mapping[str, object], geometry: Hashable, *, pad: bool, what: str
    ) -> dict[str, object]:
        prepared = super().prepare(values, geometry, pad=pad, what=what)
        keys = prepared[self.family.key_lengths]
        assert isinstance(keys, list)
        return {**prepared, self.family.key_lengths: self.replace(keys)}


def replacing_model(device: NpuDevice, replace: Callable[[list[int]], object]) -> PagedModel:
    """Capture a model whose kind replaces its key lengths."""
    kind_name = "fused_infer_attention_v1_replaced"
    kind = _ReplacedKeys(family=FIA_V1, replace=replace)
    model = PagedModel(device=device, kind_name=kind_name, kinds={kind_name: kind})
    model.capture(2)
    return model


def test_steps_take_lists_and_tuples_in_turn(npu_device: NpuDevice, updater: Updater) -> None:
    model = replacing_model(npu_device, lambda keys: tuple(keys) if keys[-1] % 2 else keys)
    lane = UpdateLane(npu_device, updater=updater)
    for lengths in ([1, 2], [3, 4], [5, 7], [8, 10], [11, 12], [13, 15], [16, 17], [18, 20]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
    assert lane.counters.updater_steps == 8


def test_steps_on_changing_streams_wait_for_all_that_a_replay_queued(
    npu_device: NpuDevice, updater: Updater
) -> None:
    random = Random(7)
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    streams = [npu_device.create_stream() for _ in range(2)]
    steps: list[tuple[list[int], list[torch.Tensor]]] = []
    npu_device.synchronize()
    for number in range(40):
        lengths = draw_lengths(random, 2)

        def replay() -> list[torch.Tensor]:
            model.graphs[2].replay()
            # Behind the replay in torch_npu's launch queue; the next step overwrites the outputs.
            filler = torch.zeros(2**20, device=npu_device.torch_device)
            for _ in range(8):
                filler += 1
            return [out.clone() for out in model.outputs[2]]

        with npu_device.use_stream(streams[number % 2]):
            copies = lane.run(model.plans[2], model.parameters(2, lengths), replay)
        steps.append((lengths, copies))
    npu_device.synchronize()
    for lengths, copies in steps:
        assert_layers_equal(copies, model.eager(2, lengths))
    assert lane.counters.updater_steps == 40


def test_steps_skip_launches_that_did_not_change(npu_device: NpuDevice, updater: Updater) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    before = cann_sim.counters().updated_launches
    for _ in range(3):
        assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))
    assert cann_sim.counters().updated_launches - before == model.num_layers
    assert (lane.counters.updates, lane.counters.skipped) == (3, 6)


def test_a_step_whose_replay_failed_leaves_the_state_of_the_graph(
    npu_device: NpuDevice, updater: Updater
) -> None:
    # The updater took the lengths of the failed step; the same lengths again are no change to it.
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    for _ in range(2):
        assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))

    def replay() -> None:
        raise RuntimeError("no replay today")

    for lengths in ([7, 8], [9, 9]):
        with pytest.raises(RuntimeError, match="no replay today"):
            lane.run(model.plans[2], model.parameters(2, lengths), replay)
    assert_layers_equal(model.step(lane, 2, [9, 9]), model.eager(2, [9, 9]))


def wrong_stream(self: object, event: object) -> None:
    """Stand for `Stream.wait_event` of a stream that the device refuses to order."""
    raise RuntimeError(f"the device refused {type(self).__name__} {type(event).__name__}")


@pytest.mark.parametrize("lengths", [[5, 6], [9, 10]])
@pytest.mark.parametrize("form", [list, tuple])
def test_an_update_first_step_that_fails_after_its_updates_does_not_count(
    npu_device: NpuDevice,
    any_updater: UpdaterChoice,
    fail_before: Callable[[UpdatePlan], None],
    form: Callable[[list[int]], Any],
    lengths: list[int],
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=any_updater)
    for _ in range(2):
        assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    group = {"actual_seq_lengths": form([1, 2]), "actual_seq_lengths_kv": form([30, 31])}
    parameters = StepParameters(key=2, groups={"default": group})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(npu_device.current_stream()), "wait_event", wrong_stream)
        fail_before(model.plans[2])
        with pytest.raises(RuntimeError, match="refused"):
            lane.run(model.plans[2], parameters, model.graphs[2].replay)
    npu_device.synchronize()
    for following in (lengths, [11, 12], [3, 4]):
        assert_layers_equal(model.step(lane, 2, following), model.eager(2, following))


def test_a_value_that_only_the_launch_refuses_is_an_update_error(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    model = replacing_model(npu_device, lambda keys: [2**63, 1] if keys[0] == 13 else keys)
    lane = UpdateLane(npu_device, updater=any_updater)
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    with pytest.raises(UpdateError) as caught:
        model.step(lane, 2, [13, 6])
    assert caught.value.layer_name == "layers.0"
    for lengths in ([5, 6], [7, 8]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))


def test_a_step_that_failed_before_its_replay_is_no_step(
    npu_device: NpuDevice, refusing: RefusingEvents
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=refusing)
    for _ in range(2):
        assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    refusing.refused = True
    with pytest.raises(RuntimeError, match="the device refused"):
        model.step(lane, 2, [7, 8])
    refusing.refused = False
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_steps_in_any_form_of_lengths_follow_each_other(
    npu_device: NpuDevice, updater: Updater
) -> None:
    random = Random(5)
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    forms: list[Any] = [list, tuple, torch.tensor, np.array]
    before = cann_sim.counters().updated_launches
    drawn = [7, 8]
    num_changes = 0
    for number in range(60):
        if number % 3:
            num_changes += 1
            drawn = [drawn[1] % 20 + 1, random.randint(1, 20)]
        form = random.choice(forms)
        ends = random.choice(forms)([1, 2])
        group = {"actual_seq_lengths": ends, "actual_seq_lengths_kv": form(drawn)}
        parameters = StepParameters(key=2, groups={"default": group})
        lane.run(model.plans[2], parameters, model.graphs[2].replay)
        outputs = [out.clone() for out in model.outputs[2]]
        assert_layers_equal(outputs, model.eager(2, drawn))
    assert lane.counters.updater_steps == 60
    updated = cann_sim.counters().updated_launches - before
    assert updated == lane.counters.updates
    assert num_changes * model.num_layers <= updated < 60 * model.num_layers


def test_a_wrong_step_after_a_quick_one_is_refused_and_changes_nothing(
    npu_device: NpuDevice, updater: Updater
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    for lengths in ([5, 6], [6, 7]):
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))
    wrong: list[Any] = [[6], [-1, 7], [6, 10**6], [6, 2**70], [6.0, 7], [True, 7], "67"]
    for lengths in wrong:
        before = cann_sim.counters().replays
        with pytest.raises(StepParameterError):
            lane.run(model.plans[2], model.parameters(2, lengths), model.graphs[2].replay)
        assert cann_sim.counters().replays == before
    assert_layers_equal(model.step(lane, 2, [6, 7]), model.eager(2, [6, 7]))
    assert lane.counters.skipped == model.num_layers


@pytest.mark.parametrize("updates_first", [False, True])
@pytest.mark.parametrize("failing", range(3))
def test_a_failing_update_is_named_and_the_next_steps_are_right(
    npu_device: NpuDevice,
    updater: Updater,
    fail_before: Callable[[UpdatePlan], None],
    failing: int,
    updates_first: bool,
) -> None:
    random = Random(3)
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[failing].launch["block_size"] = 17
    if updates_first:
        fail_before(broken)

    with pytest.raises(UpdateError) as caught:
        lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)

    assert caught.value.layer_name == f"layers.{failing}"
    assert caught.value.operator == "npu::npu_fused_infer_attention_score.out"
    for _ in range(25):
        drawn = [draw_lengths(random, 2) for _ in range(4)]
        burst = [(lengths, model.step(lane, 2, lengths)) for lengths in drawn]
        for lengths, outputs in burst:
            assert_layers_equal(outputs, model.eager(2, lengths))


def test_a_kernel_with_too_small_a_workspace_is_an_error_before_its_launch(
    npu_device: NpuDevice, updater: Updater
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[1].launch["workspace"] = broken.updates[1].launch["workspace"][:1]
    with pytest.raises(UpdateError, match=r"ScoreV3 needs a workspace of \d+ bytes, found 1;"):
        lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("block_sizes", 16, r"unknown to the operator|no argument 'block_sizes'"),
        ("block_size", "sixteen", "argument 'block_size'.* found <class 'str'>"),
    ],
)
def test_a_plan_that_cannot_be_bound_launches_nothing(
    npu_device: NpuDevice, updater: Updater, name: str, value: object, message: str
) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    broken = UpdatePlan.compile(model.recorder, 2)
    broken.updates[1].launch[name] = value
    before = cann_sim.counters().replays

    with pytest.raises(PlanError, match=message):
        lane.run(broken, model.parameters(2, [7, 8]), model.graphs[2].replay)

    assert cann_sim.counters().replays == before
    assert_layers_equal(model.step(lane, 2, [7, 8]), model.eager(2, [7, 8]))


def test_a_step_on_the_lanes_own_stream_is_refused(npu_device: NpuDevice, updater: Updater) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    # The pool of direct streams is small: after one round the lane's own comes again.
    streams = [npu_device.create_direct_stream() for _ in range(64)]
    before = cann_sim.counters().replays
    refused = 0
    for stream in streams:
        with npu_device.use_stream(stream):
            try:
                model.step(lane, 2, [7, 8])
            except LaneError:
                refused += 1
    assert refused > 0
    assert cann_sim.counters().replays - before == len(streams) - refused


def test_steps_of_two_threads_keep_their_order(npu_device: NpuDevice, updater: Updater) -> None:
    models = [PagedModel(device=npu_device, seed=seed) for seed in (0, 100)]
    for model in models:
        model.capture(2)
    lane = UpdateLane(npu_device, updater=updater)
    npu: Any = vars(torch)["npu"]
    errors: list[BaseException] = []

    def work(model: PagedModel, seed: int) -> None:
        random = Random(seed)
        try:
            npu.set_device(0)
            with npu_device.use_stream(npu_device.create_stream()):
                for _ in range(30):
                    lengths = draw_lengths(random, 2)
                    outputs = model.step(lane, 2, lengths)
                    assert_layers_equal(outputs, model.eager(2, lengths))
        except BaseException as error:  # noqa: BLE001 - shown below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(model, i)) for i, model in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    assert lane.counters.updater_steps == 60


@pytest.mark.parametrize("choice", ["kernels", "native"])
def test_an_updater_that_the_device_cannot_have_is_refused(
    npu_device: NpuDevice, device_without_direct_streams: NpuDevice, choice: UpdaterChoice
) -> None:
    with pytest.raises(LaneError, match="does not launch directly"):
        UpdateLane(device_without_direct_streams, updater=choice)
    with pytest.raises(LaneError, match="does not tell the addresses"):
        UpdateLane(FakeDevice(), updater=choice)
    with pytest.raises(LaneError, match="did you mean 'native'"):
        UpdateLane(npu_device, updater="nativ")  # type: ignore[arg-type]


def test_the_automatic_updater_is_the_fastest_that_works_and_says_why(
    npu_device: NpuDevice,
    device_without_direct_streams: NpuDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = UpdateLane(npu_device)
    assert (lane.updater, "the fastest" in lane.updater_reason) == ("native", True)
    indirect = UpdateLane(device_without_direct_streams)
    assert indirect.updater == "operators"
    assert "does not launch directly" in indirect.updater_reason
    fake = UpdateLane(FakeDevice())
    assert fake.updater == "operators"
    assert "does not tell the addresses" in fake.updater_reason
    chosen = UpdateLane(npu_device, updater="operators")
    assert (chosen.updater, chosen.updater_reason) == ("operators", "the caller chose it")
    monkeypatch.setenv("PATH", "")
    without = UpdateLane(npu_device)
    assert without.updater == "kernels"
    assert "expected a C++ compiler" in without.updater_reason


def test_lanes_of_every_choice_give_the_same(npu_device: NpuDevice) -> None:
    for choice in ("auto", "operators", "kernels", "native"):
        model = PagedModel(device=npu_device)
        model.capture(2)
        lane = UpdateLane(npu_device, updater=choice)
        assert_layers_equal(model.step(lane, 2, [7, 30]), model.eager(2, [7, 30]))
        assert lane.counters.updater_steps == (0 if choice == "operators" else 1)


def test_two_plans_of_one_key_take_turns_and_are_bound_once_each(
    npu_device: NpuDevice, updater: Updater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring a run mode steps two plans in turns, so that each step updates everything."""
    model, bound = PagedModel(device=npu_device), list[UpdatePlan]()
    model.capture(2)
    bind = updater.bind

    def counted(plan: UpdatePlan, *given: Any) -> Any:
        bound.append(plan)
        return bind(plan, *given)

    monkeypatch.setattr(updater, "bind", counted)
    lane = UpdateLane(npu_device, updater=updater)
    plans = [model.plans[2], UpdatePlan.compile(model.recorder, 2)]
    for number in range(8):
        model.plans[2] = plans[number % 2]
        lengths = [3 + number // 4, 40 - number // 2]
        assert_layers_equal(model.step(lane, 2, lengths), model.eager(2, lengths))

    assert bound == plans
    assert lane.counters.skipped == 0
    assert lane.unbound_reason(plans[0]) is lane.unbound_reason(plans[1]) is None
