"""Numbers in tensors of the host that kernels were launched with: a change is never missed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    graphed,
)
from npu_graph_runtime.errors import ReplacedWeightError

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = GraphKey(num_tokens=4)


def captured(
    npu: NpuDevice, function: Callable[..., Tensor], *args: Any, check: AddressCheck
) -> Callable[..., Tensor]:
    context = GraphContext()
    step = GraphedCallable(
        function,
        device=npu,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
        address_check=check,
    )
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        step(*args)

    def replay(*args: Any) -> Tensor:
        with context.run(RunMode.FULL, KEY):
            found: Tensor = step(*args)
        return found.clone()

    return replay


@pytest.mark.parametrize("check", [AddressCheck.ALWAYS, AddressCheck.FIRST_REPLAY])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, numbers: x * numbers[1],
        lambda x, numbers: torch.where(x > 0, x, numbers[1]),
        lambda x, numbers: torch.empty_like(x).fill_(numbers[1]),
        lambda x, numbers: torch.add(x, numbers[1:].view(1)[0], alpha=2),
    ],
)
@pytest.mark.parametrize("is_argument", [False, True])
def test_changed_number_is_refused_at_any_replay(
    npu: NpuDevice, function: Callable[..., Tensor], check: AddressCheck, *, is_argument: bool
) -> None:
    x, numbers = torch.ones(4, device=npu.torch_device), torch.tensor([1.0, 2.0])
    if is_argument:
        step, args = function, (x, numbers)
    else:
        step, args = (lambda x: function(x, numbers)), (x,)  # type: ignore[assignment]
    replay = captured(npu, step, *args, check=check)
    for _ in range(3):
        assert torch.equal(replay(*args), function(x, numbers))
    numbers[0] = 7.0  # is not used
    assert torch.equal(replay(*args), function(x, numbers))
    numbers[1] = 3.0
    for _ in range(2):
        with pytest.raises(ReplacedWeightError, match=r"aten\..* is 3\.0 now, was 2\.0"):
            replay(*args)
    numbers[1] = 2.0
    assert torch.equal(replay(*args), function(x, numbers))


def test_numbers_that_the_function_makes_and_nan_are_right(npu: NpuDevice) -> None:
    x, number = torch.ones(4, device=npu.torch_device), torch.tensor(math.nan)
    replay = captured(npu, lambda x: x * torch.tensor(2.0) + number, x, check=AddressCheck.ALWAYS)
    for _ in range(2):
        assert replay(x).isnan().all()


def test_graphed_captures_a_changed_number_again(npu: NpuDevice) -> None:
    number = torch.tensor(1.0)
    step = graphed(lambda x: x * number, device=npu)
    x = torch.ones(4, device=npu.torch_device)

    def follow() -> None:
        for value in range(12):
            for _ in range(2):
                number.fill_(value)
                assert step(x).tolist() == [float(value)] * 4

    with torch.no_grad(), pytest.warns(RuntimeWarning, match="numbers that change in tensors"):
        follow()
