"""Functions are looked at without capturing them, on tensors of the CPU or of a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from guarding.corpus import HARMLESS, HIDDEN, Case
from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import CaptureGuard, FindingKind, find_uncapturable

if TYPE_CHECKING:
    from collections.abc import Callable

# torch_npu says this of the first pinned tensor of a process.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot create tensor with internal format")

DEVICES = ["cpu", "npu"]


def input_on(device: str, npu: NpuDevice) -> Tensor:
    return torch.arange(4.0, device=npu.torch_device if device == "npu" else "cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", HIDDEN, ids=lambda case: case.name)
def test_each_hidden_read_is_named_at_its_line(npu: NpuDevice, case: Case, device: str) -> None:
    work = find_uncapturable(case.make(), (input_on(device, npu),))

    found = {(each.kind, Path(each.file).name, each.line) for each in work.findings}
    assert found == {(case.kind, "corpus.py", case.line)}
    assert work.stopped is None
    is_cached = case.name == "workspace_in_a_cache_of_functools"
    assert [each.is_of_first_call for each in work.findings] == [is_cached] * len(work.findings)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: case.name)
def test_no_finding_for_harmless_functions(npu: NpuDevice, case: Case, device: str) -> None:
    work = find_uncapturable(case.make(), (input_on(device, npu),))

    assert (work.findings, work.stopped) == ((), None)


def test_call_that_raises_is_looked_at_as_far_as_it_came() -> None:
    layers: dict[str, nn.Module] = {}

    def step(x: Tensor) -> Any:
        x = x * x.max().item()
        return layers["last"](x)

    work = find_uncapturable(step, (torch.ones(4),))

    assert [each.kind for each in work.findings] == [FindingKind.SCALAR_READ]
    first = step.__code__.co_firstlineno
    assert work.stopped == f"{__file__}:{first + 2}: KeyError: 'last'"


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.is_ready = False
        self.log: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.is_ready = True
        self.count += 1
        self.log.append(self.count)
        return x * self.count


def test_values_of_python_that_each_call_changes_are_found_at_the_line_that_writes_them() -> None:
    work = find_uncapturable(Counting(), (torch.ones(4),))

    first = Counting.forward.__code__.co_firstlineno
    assert [(each.kind, each.operator, each.line) for each in work.findings] == [
        (FindingKind.CHANGED_STATE, "count", first + 2),
        (FindingKind.CHANGED_STATE, "log", first + 3),
    ]
    assert "count was 0, is 1" in work.findings[0].detail


def test_marked_functions_are_left_out_where_the_graph_breaks_at_them() -> None:
    context = GraphContext()

    @runs_eagerly(context)
    def marked(x: Tensor) -> Tensor:
        return x + x.max().item() + len(x.tolist()) + len(x.cpu())

    def step(x: Tensor) -> Tensor:
        return marked(x + 1) * 2

    assert find_uncapturable(step, (torch.ones(4),), context=context).findings == ()
    assert find_uncapturable(step, (torch.ones(4),)).findings
    assert context.capture_session is None


def test_compiled_functions_are_looked_at_as_they_are_written() -> None:
    compiled = torch.compile(lambda x: x * x.max().item(), backend="eager")

    (found,) = find_uncapturable(compiled, (torch.ones(4),)).findings

    assert found.kind is FindingKind.SCALAR_READ


def test_a_device_that_is_named_in_the_code_is_played_too() -> None:
    def step(x: Tensor) -> Tensor:
        bias = torch.zeros(4, device="cuda") + torch.ones(4).to("cuda", torch.float16)
        return x + bias.cuda()

    assert find_uncapturable(step, (torch.ones(4),)).findings == ()


@pytest.mark.parametrize(
    "write",
    [
        lambda x, half: x.to(half),
        lambda x, half: x.to(x.device, half),
        lambda x, half: x.to(x.device, dtype=half, copy=True),
        lambda x, half: x.half().to(x),
        lambda x, half: torch.tensor([1, 2]).to("cpu", half),
        lambda x, half: torch.as_tensor(x, dtype=half),
        lambda x, half: x.to(memory_format=torch.contiguous_format),
    ],
)
def test_moves_that_stay_on_one_side_are_no_copies(
    write: Callable[[Tensor, torch.dtype], Any], npu: NpuDevice
) -> None:
    def step(x: Tensor) -> Tensor:
        return x + len(write(x, torch.float16))

    for device in DEVICES:
        work = find_uncapturable(step, (input_on(device, npu),))
        assert (work.findings, work.stopped) == ((), None)


def test_memory_of_the_fake_device_is_memory_of_the_host(context: GraphContext) -> None:
    fake, key = FakeDevice(), GraphKey(num_tokens=4)
    step = GraphedCallable(
        lambda x: x.to(x.device, torch.float16) * torch.tensor([1.0, 2.0, 3.0, 4.0]),
        device=fake,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
        guard=CaptureGuard.RAISE,
    )
    with CaptureSession(fake, context), context.run(RunMode.FULL, key):
        step(torch.ones(4))
    assert step.is_captured(key)
