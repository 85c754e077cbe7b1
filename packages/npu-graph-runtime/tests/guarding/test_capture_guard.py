"""The guard of a capture names work that cannot be captured, and its line.

Runs on the real torch_npu, because tensors of the fake device are host tensors.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from guarding.corpus import HARMLESS, HIDDEN, Case
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import CaptureGuard, FindingKind
from npu_graph_runtime.errors import UncapturableError

if TYPE_CHECKING:
    from collections.abc import Callable

# torch_npu says this of the first pinned tensor of a process.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot create tensor with internal format")

KEY = GraphKey(num_tokens=4)


def captured(
    npu: NpuDevice,
    context: GraphContext,
    function: Callable[[Tensor], Any],
    mode: RunMode = RunMode.FULL,
    **options: Any,
) -> GraphedCallable:
    options = {"guard": CaptureGuard.RAISE, "warmup_runs": 0, **options}
    step = GraphedCallable(
        function, device=npu, context=context, run_mode=mode, name="step", **options
    )
    with CaptureSession(npu, context), context.run(mode, KEY):
        step(torch.arange(4.0, device=npu.torch_device))
    return step


@pytest.mark.parametrize("is_inference", [False, True], ids=["plain", "inference"])
@pytest.mark.parametrize("case", HIDDEN, ids=lambda case: case.name)
def test_each_hidden_read_is_named_at_its_line(
    npu: NpuDevice, context: GraphContext, case: Case, is_inference: bool
) -> None:
    with (
        torch.no_grad(),
        torch.inference_mode(is_inference),
        pytest.raises(UncapturableError, match=r"capturing 'step' .* cannot record") as refused,
    ):
        captured(npu, context, case.make())

    kinds = {(found.kind, Path(found.file).name, found.line) for found in refused.value.findings}
    assert (case.kind, "corpus.py", case.line) in kinds
    assert {line for _, _, line in kinds} == {case.line}
    assert f"corpus.py:{case.line}" in str(refused.value)
    assert sys.getprofile() is None


@pytest.mark.parametrize("is_inference", [False, True], ids=["plain", "inference"])
@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: case.name)
def test_no_finding_for_harmless_functions(
    npu: NpuDevice, context: GraphContext, case: Case, is_inference: bool
) -> None:
    with torch.no_grad(), torch.inference_mode(is_inference), warnings.catch_warnings():
        warnings.simplefilter("error")
        captured(npu, context, case.make()).release_all()


def test_all_findings_of_a_run_are_listed_with_their_modules_and_the_first_has_a_remedy(
    npu: NpuDevice, context: GraphContext
) -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.max().item()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Identity(), Gate()])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x[x > 0]

    with pytest.raises(UncapturableError) as refused:
        captured(npu, context, Model())

    first, second = refused.value.findings
    assert (first.kind, first.module) == (FindingKind.SCALAR_READ, "layers.1")
    assert first.operator == "aten._local_scalar_dense.default"
    assert (second.kind, second.module) == (FindingKind.DATA_DEPENDENT_SHAPE, "Model")
    message = str(refused.value)
    assert "in 2 places" in message
    assert f"{first.place}: aten._local_scalar_dense.default reads a value" in message
    assert first.remedy in message
    assert second.remedy not in message


def test_guard_only_warns_if_requested(npu: NpuDevice, context: GraphContext) -> None:
    cache: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        if not cache:
            cache.append(torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device))
        return x + cache[0]

    with pytest.warns(RuntimeWarning, match=r"in 2 places.*lift_fresh"):
        captured(npu, context, step, guard=CaptureGuard.WARN).release_all()


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.PIECEWISE, RunMode.BREAKABLE])
def test_values_cached_in_the_warm_up_run_are_no_finding(
    npu: NpuDevice, context: GraphContext, mode: RunMode
) -> None:
    cache: dict[str, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        if "scale" not in cache:
            cache["scale"] = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
        return x + cache["scale"]

    captured(npu, context, step, mode, warmup_runs=1).release_all()


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.PIECEWISE])
def test_marked_function_is_part_of_a_graph_that_does_not_break(
    npu: NpuDevice, context: GraphContext, mode: RunMode
) -> None:
    @runs_eagerly(context)
    def marked(x: Tensor) -> Tensor:
        return x + x.max().item()

    with pytest.raises(UncapturableError, match="_local_scalar_dense"):
        captured(npu, context, lambda x: marked(x + 1) * 2, mode)


def test_marked_function_may_do_all_of_it_where_the_graph_breaks(
    npu: NpuDevice, context: GraphContext
) -> None:
    kept: list[Any] = []

    @runs_eagerly(context)
    def marked(x: Tensor) -> Tensor:
        kept.append(x * 2)
        npu.synchronize()
        return x + x.max().item() + len(x[x > 0]) + len(str(x))

    graphed = captured(npu, context, lambda x: marked(x + 1) * 2, RunMode.BREAKABLE)
    graphed.release_all()

    with pytest.raises(UncapturableError, match="_local_scalar_dense"):
        captured(npu, context, lambda x: marked(x + x.max().item()), RunMode.BREAKABLE)


def test_function_that_raises_leaves_nothing_behind(npu: NpuDevice, context: GraphContext) -> None:
    def step(x: Tensor) -> Tensor:
        raise KeyError("no such layer")

    def profiled(*_: object) -> None:
        """A profiler of the user's."""

    sys.setprofile(profiled)
    try:
        with pytest.raises(KeyError, match="no such layer"):
            captured(npu, context, step)
        assert sys.getprofile() is profiled
    finally:
        sys.setprofile(None)
    captured(npu, context, lambda x: x + 1).release_all()


def test_replays_do_not_run_the_guard(npu: NpuDevice, context: GraphContext) -> None:
    runs: list[int] = []

    def step(x: Tensor) -> Tensor:
        runs.append(1)
        return x + 1

    with pytest.warns(RuntimeWarning, match="changed 1 value"):
        graphed = captured(npu, context, step, warmup_runs=1)
    assert len(runs) == 3  # warm-up run, guard, capture
    x = torch.arange(4.0, device=npu.torch_device)
    graphed.release_all()
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        graphed(x)
    assert len(runs) == 6
    with context.run(RunMode.FULL, KEY):
        graphed(x)
    assert len(runs) == 6
    graphed.release_all()
