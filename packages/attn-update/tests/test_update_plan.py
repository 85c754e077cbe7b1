"""A plan is validated when it is compiled, and a step before anything is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import (
    DeadTensorError,
    ParameterGroup,
    PlanError,
    StepParameterError,
    StepParameters,
    UnknownNameError,
    UpdatePlan,
)
from npu_graph_testing.attention import PagedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update import Lengths
    from conftest import Model
    from npu_graph_runtime import NpuDevice

LENGTHS = frozenset({"actual_seq_lengths", "actual_seq_lengths_kv"})


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({}, "group 'default', which is not declared"),
        (
            {
                "default": ParameterGroup(arguments=LENGTHS),
                "defualt": ParameterGroup(arguments=LENGTHS),
            },
            "'defualt' feeds no layer; did you mean 'default'",
        ),
        (
            {"default": ParameterGroup(arguments=frozenset({"actual_seq_lengths_k"}))},
            "no step argument 'actual_seq_lengths_k'; did you mean",
        ),
        (
            {"default": ParameterGroup(arguments=frozenset({"block_table"}))},
            "no step argument 'block_table'",
        ),
    ],
)
def test_compile_with_groups_that_do_not_fit_names_the_misfit(
    model: Model, groups: Mapping[str, ParameterGroup], reason: str
) -> None:
    model.capture(2)

    with pytest.raises(PlanError, match=reason):
        UpdatePlan.compile(model.recorder, 2, groups=groups)


def test_compile_with_an_argument_that_was_not_captured_is_refused(model: Model) -> None:
    arguments = model.arguments(2, 0, [1, 1])
    del arguments["actual_seq_lengths"]
    graph = model.device.create_graph()
    with model.recorder.recording("key"), model.device.capture(graph, pool=model.pool):
        model.recorder.attention("layer.0", "attention", arguments)

    with pytest.raises(PlanError, match="captured without 'actual_seq_lengths'"):
        UpdatePlan.compile(
            model.recorder, "key", groups={"default": ParameterGroup(arguments=LENGTHS)}
        )


def test_compile_without_groups_derives_them_from_the_capture(model: Model) -> None:
    model.capture(2)

    plan = UpdatePlan.compile(model.recorder, 2)

    assert plan.groups == {"default": ParameterGroup(arguments=LENGTHS)}


def test_compile_of_an_unknown_key_lists_the_known(model: Model) -> None:
    model.capture(2)

    with pytest.raises(UnknownNameError, match="recorded keys: 2"):
        UpdatePlan.compile(model.recorder, 4)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (["layer.0", "layer.1", "layer.2", "layer.3"], r"'layer\.3' was not recorded"),
        (["layer.0", "layer.1"], r"'layer\.2' was recorded and not expected"),
    ],
)
def test_compile_with_other_layers_than_recorded_is_refused(
    model: Model, layers: list[str], reason: str
) -> None:
    model.capture(2)

    with pytest.raises(PlanError, match=reason):
        UpdatePlan.compile(model.recorder, 2, layers=layers)


def test_compile_of_equal_layers_checks_a_step_once(model: Model) -> None:
    plan = model.capture(2)

    step = plan.check(model.parameters(2, [3, 4]))

    assert [update.slot for update in plan.updates] == [0, 0, 0]
    assert step.values == ({"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [3, 4]},)


def parameters(**change: object) -> StepParameters:
    group = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [3, 4]}
    values = {name: value for name, value in {**group, **change}.items() if value is not None}
    return StepParameters(key=2, groups={"default": values})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (StepParameters(key=4, groups={}), "for key 4, the plan is for key 2"),
        (StepParameters(key=2, groups={}), "group 'default' is declared and was not given"),
        (StepParameters(key=2, groups={"deflaut": {}}), "did you mean 'default'"),
        (parameters(actual_seq_lengths_kv=None), "'actual_seq_lengths_kv' is declared and was not"),
        (parameters(actual_seq_length=[1]), "'actual_seq_length' is not declared; did you mean"),
        (parameters(actual_seq_lengths_kv=[3]), "expected 2 lengths as captured, found 1"),
        (parameters(actual_seq_lengths_kv=[3, 4, 5]), "found 3"),
        (parameters(actual_seq_lengths=[2, 1]), "must not fall"),
        (parameters(actual_seq_lengths=[1, 3]), "must be 2"),
        (parameters(actual_seq_lengths_kv=[3, -4]), "at 1 is negative"),
        (parameters(actual_seq_lengths_kv=[3, 13]), "13 at 1 is above 12"),
        (parameters(actual_seq_lengths_kv=[3, 4.0]), "4.0 of type float"),
        (parameters(actual_seq_lengths_kv=torch.empty(2, device="meta")), "on meta"),
    ],
)
def test_check_of_a_wrong_step_names_the_mistake(
    model: Model, given: StepParameters, reason: str
) -> None:
    plan = model.capture(2)

    with pytest.raises(StepParameterError, match=reason):
        plan.check(given)


def test_check_of_a_short_batch_declared_padded_fills_it(model: Model) -> None:
    plan = model.capture(4, pad=True)
    group = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [3, 4]}

    step = plan.check(StepParameters(key=4, groups={"default": group}))

    assert step.values[0] == {
        "actual_seq_lengths": [1, 2, 3, 4],
        "actual_seq_lengths_kv": [3, 4, 0, 0],
    }


def test_check_after_release_of_the_key_is_refused(model: Model) -> None:
    plan = model.capture(2)
    model.recorder.release(2)
    model.capture(2)

    with pytest.raises(UnknownNameError, match="compile a plan for the new capture"):
        plan.check(model.parameters(2, [3, 4]))


def test_check_after_a_cache_was_freed_names_it(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)
    plan, parameters = model.plans[2], model.parameters(2, [3, 4])
    plan.check(parameters)

    del model.caches[1]

    with pytest.raises(DeadTensorError, match=r"'key' of layer 'layers\.1'"):
        plan.check(parameters)


def test_check_with_a_block_table_made_inside_the_capture_passes(model: Model) -> None:
    # Its memory is the graph's own, and stays as long as the graph does.
    arguments = model.arguments(2, 0, [1, 1])
    graph = model.device.create_graph()
    with model.recorder.recording("key"), model.device.capture(graph, pool=model.pool):
        table = model.inputs[2]["block_table"] + 0
        model.recorder.attention("layer.0", "attention", {**arguments, "block_table": table})
        del table
    plan = UpdatePlan.compile(model.recorder, "key")

    plan.check(StepParameters(key="key", groups=model.parameters(2, [3, 4]).groups))


def test_check_after_an_output_was_freed_passes(npu_device: NpuDevice) -> None:
    model = PagedModel(device=npu_device)
    model.capture(2)

    model.outputs.clear()

    model.plans[2].check(model.parameters(2, [3, 4]))


def test_check_of_a_rebound_block_table_of_another_shape_is_refused(
    make_model: Callable[..., Model],
) -> None:
    model = make_model(rebind_block_table=True)
    model.capture(2)
    plan = UpdatePlan.compile(model.recorder, 2)
    group: dict[str, Lengths] = {
        "actual_seq_lengths": [1, 2],
        "actual_seq_lengths_kv": [3, 4],
        "block_table": torch.zeros(2, 9, dtype=torch.int32),
    }

    with pytest.raises(StepParameterError, match=r"expected a tensor of shape \(2, 3\)"):
        plan.check(StepParameters(key=2, groups={"default": group}))
