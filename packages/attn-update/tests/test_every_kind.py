"""Every kind on simulated CANN: right values for any lengths, mistakes refused, failures named."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import ParameterGroup, StepParameterError, StepParameters, UpdateError, UpdateLane
from attn_update.issuing.kernels.kernel_signature import KERNEL_SIGNATURES
from attn_update.kinds.kind import needs_update
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.cases import (
    CaseModel,
    all_cases,
    all_kinds,
    find_case,
    lengths_of_process,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_update import UpdaterChoice
    from npu_graph_runtime import NpuDevice
    from npu_graph_testing.attention.cases import AttentionCase, DrawnStep, Step

MOST_AHEAD = 4


def each(cases: list[AttentionCase]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name.replace(" ", "-"))


every_case = each(all_cases())
updated_cases = [c for c in all_cases() if needs_update(all_kinds()[c.kind_name])]
every_updated_case = each(updated_cases)
# The others take a short batch as it is.
every_padded_case = each([c for c in updated_cases if not c.kind_name.endswith("_unpadded")])


def make_model(device: NpuDevice, case: AttentionCase, **given: Any) -> CaseModel:
    model = CaseModel(device=device, case=case, kinds=all_kinds(), **given)
    model.capture(*case.keys)
    return model


def num_launches() -> int:
    now = cann_sim.counters()
    return now.launches + now.captured_launches + now.updated_launches + now.replays


def assert_captured_differs(model: CaseModel, random: Random) -> None:
    """Show that a step whose lengths never arrived would be seen."""
    key = model.case.keys[-1]
    for _ in range(5):
        drawn = model.draw(random, key)
        # What needs no update differs by what is written on the device.
        other = model.draw(random, key) if not drawn.step else drawn
        captured = replace(other, step=model.captured_step(key))
        pairs = zip(model.expected(drawn), model.expected(captured), strict=True)
        if not any(torch.equal(found.cpu(), other.cpu()) for found, other in pairs):
            return
    raise AssertionError("the drawn steps give what the captured one gives")


def fail_one_update(model: CaseModel, lane: UpdateLane, random: Random) -> None:
    """Make the device reject one of the updates of a step."""
    lane.run(*model.prepared(model.draw(random, model.case.keys[0])))
    model.device.synchronize()
    layer = random.randrange(model.num_layers)
    with (
        cann_sim.injected_faults(f"task_update:{layer + 1}"),
        pytest.raises(UpdateError, match="injected fault") as caught,
    ):
        lane.run(*model.prepared(model.draw(random, model.case.keys[0])))
    assert caught.value.layer_name == f"layers.{layer}"
    assert caught.value.operator == model.recorder.kinds[model.kind_name].operator


def test_launch_that_takes_another_number_of_kernels_is_an_error_of_its_layer(
    npu_device: NpuDevice, any_updater: UpdaterChoice
) -> None:
    """The number of kernels of an attention call (one or two) may depend on its lengths."""
    random = Random(3)
    model = make_model(npu_device, find_case("v1 decode"), dtype=torch.float16)
    lane = UpdateLane(npu_device, updater=any_updater)
    key = model.case.keys[0]
    lane.run(*model.prepared(model.draw(random, key)))
    npu_device.synchronize()
    with (
        cann_sim.injected_faults("two_kernels(aclnnFusedInferAttentionScoreV3):2"),
        pytest.raises(UpdateError, match="the task group has 1 kernels") as caught,
    ):
        lane.run(*model.prepared(model.draw(random, key)))
    assert caught.value.layer_name == "layers.1"


def test_every_kind_has_a_case() -> None:
    assert {case.kind_name for case in all_cases()} == all_kinds().keys()


@pytest.mark.parametrize(
    ("dtype", "fails"),
    [
        pytest.param(torch.float16, True, id="fp16-after-a-failure"),
        pytest.param(torch.bfloat16, False, id="bf16"),
    ],
)
@every_case
def test_steps_of_every_kind_equal_the_eager_operator(
    npu_device: NpuDevice,
    any_updater: UpdaterChoice,
    case: AttentionCase,
    dtype: torch.dtype,
    fails: bool,
    num_bursts: int,
) -> None:
    # Two keys mixed, the host up to four steps ahead, block tables rewritten.
    random = Random(case.name)
    model = make_model(npu_device, case, dtype=dtype)
    lane = UpdateLane(npu_device, updater=any_updater)
    assert_captured_differs(model, random)
    if fails and needs_update(all_kinds()[case.kind_name]):
        fail_one_update(model, lane, random)
    for _ in range(num_bursts):
        drawn = [model.draw(random, random.choice(case.keys)) for _ in range(MOST_AHEAD)]
        before = cann_sim.counters().synchronisations
        outputs = [model.run(lane, step) for step in drawn]
        assert cann_sim.counters().synchronisations == before
        for step, found in zip(drawn, outputs, strict=True):
            expected = model.expected(step)
            assert_layers_equal(model.valid(step.step, found), model.valid(step.step, expected))
    kind = all_kinds()[case.kind_name]
    has_kernel = kind.operator in KERNEL_SIGNATURES or not needs_update(kind)
    is_used = any_updater == "native" or (any_updater == "kernels" and has_kernel)
    assert lane.counters.updater_steps == (lane.counters.steps if is_used else 0)


@every_padded_case
def test_short_batch_of_every_kind_is_padded_where_declared(
    npu_device: NpuDevice, case: AttentionCase
) -> None:
    random = Random(case.name)
    key = max(case.keys)
    names = case.draw(random, make_model(npu_device, case, num_layers=1), key).keys()
    kind = all_kinds()[case.kind_name]
    groups = {"default": ParameterGroup(arguments=kind.step_arguments & names, pad=True)}
    model = make_model(npu_device, case, groups=groups)
    lane = UpdateLane(npu_device)
    for count in range(1, key + 1):
        drawn = model.draw(random, key)
        given = {
            name: value if name == "block_table" else value[:count]
            for name, value in drawn.step.items()
        }
        short = replace(drawn, step=given)
        outputs = model.run(lane, short)
        plan, parameters, _ = model.prepared(short)
        (padded,) = plan.check(parameters).values
        lengths = [value for name, value in padded.items() if name != "block_table"]
        assert {len(value) for value in lengths} == {key}  # type: ignore[arg-type]
        expected = model.expected(replace(drawn, step=drawn.step | dict(padded)))
        assert_layers_equal(outputs, expected)


def mistakes(model: CaseModel, drawn: DrawnStep) -> Iterator[tuple[str, Step]]:
    """Yield every possible mistake in the step arguments, with its description."""
    right = model.step_arguments(drawn.key, drawn.step)
    for name, value in right.items():
        yield f"{name} missing", {key: right[key] for key in right.keys() - {name}}
        yield f"{name} mistyped", {**right, f"{name}s": value}
        if name == "block_table":
            assert isinstance(value, torch.Tensor)
            yield "block table of another shape", {**right, name: value[:, 1:]}
            yield "block table of another dtype", {**right, name: value.long()}
            yield "block table of the host", {**right, name: value.cpu()}
            continue
        lengths = lengths_of_process(value)
        broken: dict[str, object] = {
            "too short": lengths[:-1],
            "too long": [*lengths, lengths[-1]],
            "negative": [-1, *lengths[1:]],
            "too large": [*lengths[:-1], 1_000_000],
            "of floats": [float(length) for length in lengths],
            "on the device": torch.tensor(lengths, device="npu"),
            "a matrix": torch.tensor([lengths]).tolist(),
        }
        is_cumulative = "kv" not in name and name != "context_lens"
        if is_cumulative and lengths == sorted(lengths) and lengths[0] < lengths[-1]:
            broken["falling"] = lengths[::-1]
        for what, wrong in broken.items():
            yield f"{name} {what}", {**right, name: wrong}


@every_updated_case
def test_every_mistake_in_a_step_of_every_kind_is_refused_before_any_launch(
    npu_device: NpuDevice, case: AttentionCase
) -> None:
    random = Random(case.name)
    model = make_model(npu_device, case, num_layers=1)
    lane = UpdateLane(npu_device)
    key = case.keys[-1]
    drawn = model.draw(random, key)
    broken = list(mistakes(model, drawn))
    npu_device.synchronize()
    before = num_launches()

    accepted = []
    for what, wrong in broken:
        parameters = StepParameters(key=key, groups={"default": wrong})
        try:
            lane.run(model.plans[key], parameters, model.graphs[key].replay)
        except StepParameterError:
            continue
        accepted.append(what)
    assert accepted == []
    npu_device.synchronize()
    assert num_launches() == before
    assert len(broken) >= 8

    outputs = model.run(lane, drawn)
    assert_layers_equal(
        model.valid(drawn.step, outputs), model.valid(drawn.step, model.expected(drawn))
    )
