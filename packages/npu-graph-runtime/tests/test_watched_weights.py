"""Weights that are replaced after a capture are named; weights that are written stay captured.

Runs on the real torch_npu, because graphs of the fake device keep the memory they read alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.capturing.watching.watched_weights import WatchedWeights
from npu_graph_runtime.errors import ReplacedWeightError

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = [GraphKey(num_tokens=size) for size in (4, 2)]


def plus_one(hidden: torch.Tensor) -> torch.Tensor:
    return hidden + 1


class Model(nn.Module):
    scale: torch.Tensor

    def __init__(self, context: GraphContext) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.requires_grad_(False)
        self._add = runs_eagerly(context)(plus_one)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self._add(self.linear(hidden))
        return added * self.scale


class Captured:
    """A model captured under two keys, with its input."""

    def __init__(
        self,
        device: NpuDevice,
        mode: RunMode = RunMode.FULL,
        check: AddressCheck = AddressCheck.FIRST_REPLAY,
    ) -> None:
        self.device, self.context, self.mode = device, GraphContext(), mode
        self.model = Model(self.context).to("npu")
        self.graphed = GraphedCallable(
            self.model,
            device=self.device,
            context=self.context,
            run_mode=mode,
            name="model",
            address_check=check,
        )
        self.hidden = torch.ones(4, 3, device=device.torch_device)
        self.capture()
        self.replay()

    def capture(self) -> None:
        with CaptureSession(self.device, self.context):
            for key in KEYS:
                with self.context.run(self.mode, key):
                    self.graphed(self.hidden[: key.num_tokens])

    def replay(self) -> None:
        """Replay both graphs and hold them against the model as it is."""
        for key in KEYS:
            rows = self.hidden[: key.num_tokens]
            with self.context.run(self.mode, key):
                output = self.graphed(rows).clone()
            self.device.synchronize()
            torch.testing.assert_close(output, self.model(rows))


def assign_data(model: Model) -> None:
    model.linear.weight.data = torch.zeros(3, 3).to("npu")


def replace_parameter(model: Model) -> None:
    model.linear.weight = nn.Parameter(torch.zeros(3, 3).to("npu"), requires_grad=False)


def replace_module(model: Model) -> None:
    model.linear = nn.Linear(3, 3).to("npu")


def load_by_assignment(model: Model) -> None:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def replace_buffer(model: Model) -> None:
    model.scale = torch.zeros(3).to("npu")


def convert(model: Model) -> None:
    model.half()


def remove(model: Model) -> None:
    model.linear.bias = None  # type: ignore[assignment]


REPLACEMENTS: list[tuple[Callable[[Model], None], str]] = [
    (assign_data, "linear.weight"),
    (replace_parameter, "linear.weight"),
    (replace_module, "linear.bias"),
    (load_by_assignment, "scale"),
    (replace_buffer, "scale"),
    (convert, "linear.weight is a tensor of torch.float16"),
    (remove, "linear.bias is gone"),
]


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
@pytest.mark.parametrize("check", [AddressCheck.FIRST_REPLAY, AddressCheck.ALWAYS])
@pytest.mark.parametrize(("replace", "named"), REPLACEMENTS)
def test_replaced_weight_is_named_before_anything_is_launched(
    npu: NpuDevice, mode: RunMode, check: AddressCheck, replace: Callable[[Model], None], named: str
) -> None:
    captured = Captured(npu, mode, check)
    replayed = captured.graphed.counters.replayed

    replace(captured.model)

    for key in KEYS:
        for _ in range(2):
            with (
                captured.context.run(mode, key),
                pytest.raises(ReplacedWeightError, match=rf"num_tokens={key.num_tokens}") as raised,
            ):
                captured.graphed(captured.hidden[: key.num_tokens])
            assert named in str(raised.value)
    assert captured.graphed.counters.replayed == replayed


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
def test_weights_that_are_written_stay_captured(npu: NpuDevice, mode: RunMode) -> None:
    captured = Captured(npu, mode)
    state = {name: value + 1 for name, value in captured.model.state_dict().items()}

    captured.model.load_state_dict(state)

    captured.graphed.check_weights()
    captured.replay()


def test_graph_captured_again_has_the_new_weights(npu: NpuDevice) -> None:
    captured = Captured(npu)
    assign_data(captured.model)
    captured.graphed.release_all()

    captured.capture()

    captured.replay()
    captured.graphed.check_weights()


def test_weight_whose_old_memory_is_kept_is_found_by_a_check(npu: NpuDevice) -> None:
    captured = Captured(npu)
    kept = captured.model.scale

    replace_buffer(captured.model)

    with pytest.raises(ReplacedWeightError, match="1 of 3 weights differ from the capture: scale"):
        captured.graphed.check_weights()
    assert kept.tolist() == [2.0] * 3


def test_weight_that_is_negated_lazily_is_another_weight(npu: NpuDevice) -> None:
    captured = Captured(npu)
    number = torch.view_as_complex(torch.ones(3, 2).to("npu"))
    captured.model.scale = number.imag
    captured.graphed.release_all()
    captured.capture()

    captured.model.scale = number.conj().imag

    with pytest.raises(ReplacedWeightError, match=r"1 of 3 .* scale is a negated tensor"):
        captured.graphed.check_weights()


def test_weights_of_another_function_are_those_that_the_caller_names(npu: NpuDevice) -> None:
    device, context = npu, GraphContext()
    weights: dict[str, Any] = {"table": torch.ones(3).to("npu")}
    graphed = GraphedCallable(
        lambda hidden: hidden * weights["table"],
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="product",
        weights=weights.items,
    )
    hidden = torch.ones(4, 3).to("npu")
    with CaptureSession(device, context), context.run(RunMode.FULL, KEYS[0]):
        graphed(hidden)

    weights["table"] = torch.zeros(3).to("npu")

    with context.run(RunMode.FULL, KEYS[0]), pytest.raises(ReplacedWeightError, match="table is a"):
        graphed(hidden)


def test_never_looks_at_no_weight(npu: NpuDevice) -> None:
    captured = Captured(npu, check=AddressCheck.NEVER)

    assign_data(captured.model)

    captured.graphed.check_weights()
    with captured.context.run(RunMode.FULL, KEYS[0]):
        captured.graphed(captured.hidden)


def test_weights_that_wrap_other_tensors_are_watched_by_those(npu: NpuDevice) -> None:
    wrap: Any = TwoTensor
    scales = torch.ones(3, device="npu")
    weights: dict[str, Any] = {"wrapped": wrap(torch.ones(3, device="npu"), scales)}
    watched = WatchedWeights(weights.items, [])
    baked = watched.baked()
    assert list(baked) == ["wrapped.a", "wrapped.b"]
    watched.check(baked, "product")

    weights["wrapped"] = wrap(torch.ones(3, device="npu"), scales)

    with pytest.raises(ReplacedWeightError, match=r"1 of 2 weights differ .* wrapped\.a is a"):
        watched.check(baked, "product")


def test_unused_weights_do_not_outlive_their_callable(npu: NpuDevice) -> None:
    captured = Captured(npu)
    model = captured.model
    del captured

    assign_data(model)
