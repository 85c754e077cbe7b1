"""`npu-compile explain` on the example engine's model, with the operators of the real torch_npu."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
import npu_compile
from npu_compile import CompileConfig, explain
from qwen3_engine.demonstration.explained_model import tiny_qwen3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npu_graph_runtime import NpuDevice

# Two layers: a gate in each, and a norm after each of two residual sums.
FUSIONS = {"fuse_add_rms_norm": 4, "fuse_swiglu": 2}


@pytest.fixture(scope="module")
def asked() -> Iterator[Mapping[str, Any]]:
    told = tiny_qwen3()
    arguments: Mapping[str, Any] = {
        name: told[name] for name in signature(explain).parameters if name in told
    }
    yield arguments
    arguments["model"].attention.close()


def test_fusions_of_a_real_model_are_counted(asked: Mapping[str, Any]) -> None:
    explanation = npu_compile.explain(**asked)

    assert explanation.report.fusions is not None
    counts = explanation.report.fusions.match_counts()
    assert {rule: counts[rule] for rule in FUSIONS} == FUSIONS
    assert explanation.num_device_graphs() == {"decode": 4, "prefill": 2 * 3}
    for operators, launches in (
        (explanation.operators_before, explanation.launches_before),
        (explanation.operators_after, explanation.launches_after),
    ):
        assert operators is not None
        # Attention inside the engine's operator returns nothing, and is not among the launches.
        assert sum(bool(each.shapes) for each in operators) == launches
        assert sum("attention" in each.name for each in operators) == 2
    page = explanation.html()
    assert all(f"<code>{rule}</code>" in page for rule in FUSIONS)


def test_counted_launches_are_those_of_the_device(
    asked: Mapping[str, Any], device: NpuDevice
) -> None:
    """Both ways of running the same model: fused and as it is."""
    model, inputs, dims = asked["model"], asked["inputs"], asked["dynamic_arg_dims"]
    rows = len(inputs["input_ids"])
    explanation = npu_compile.explain(**asked)
    launches: dict[bool, int] = {}
    for fuse in (True, False):
        compiled = npu_compile.compile_model(
            model, CompileConfig(fuse=fuse), device=device, dynamic_arg_dims=dims
        )
        for _ in range(2):
            model.attention.step_state.load((1,) * rows, (0,) * rows)
            device.synchronize()
            before = cann_sim.counters()
            compiled(**inputs)
            device.synchronize()
            launches[fuse] = (cann_sim.counters() - before).launches

    assert explanation.launches_before is not None
    assert explanation.launches_after is not None
    saved = explanation.launches_before - explanation.launches_after
    assert launches[False] - launches[True] == saved
