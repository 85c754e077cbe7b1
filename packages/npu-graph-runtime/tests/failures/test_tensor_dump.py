"""Values from inside captured graphs, on the fake device and on torch_npu over cann-sim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import TensorDump
from npu_graph_runtime.errors import CaptureSessionError

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {size: GraphKey(num_tokens=size) for size in (4, 2)}


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    device: FakeDevice | NpuDevice = request.getfixturevalue(request.param)
    return device


def only(tensor: Tensor) -> float:
    (value,) = set(tensor.flatten().tolist())
    return float(value)


class Model:
    """Two layers with a break between them; each keeps its result."""

    def __init__(
        self, device: GraphDevice, context: GraphContext, mode: RunMode, **options: Any
    ) -> None:
        self.device, self.context = device, context
        self.dump = TensorDump(device, context, **options.pop("limits", {}))
        self.tokens = torch.zeros(4, 3, device=device.torch_device)
        self.attention = runs_eagerly(context)(self._attention)
        if options.pop("is_told", False):
            self.lines: list[str] = []
            options["around_replay"] = self.dump.told(self.lines.append)
        self.step = GraphedCallable(
            self.run, device=device, context=context, run_mode=mode, name="model", **options
        )

    def _attention(self, x: Tensor) -> Tensor:
        return self.dump.keep(x * 2, "layers.0.attention")

    def run(self, size: int) -> Tensor:
        x = self.dump.keep(self.tokens[:size] + 1, "layers.0.qkv")
        return self.dump.keep(self.attention(x) * 3, "layers.1.mlp") - 1

    def capture(self) -> None:
        with CaptureSession(self.device, self.context):
            for size, key in KEYS.items():
                with self.context.run(self.step.run_mode, key):
                    self.step(size)

    def __call__(self, size: int, value: float) -> Tensor:
        self.tokens.fill_(value)
        with self.context.run(self.step.run_mode, KEYS[size]):
            result: Tensor = self.step(size)
        return result

    def values(self, size: int) -> dict[str, tuple[list[int], float]]:
        return {
            each.name: (list(each.value.shape), only(each.value))
            for each in self.dump.read(KEYS[size])
        }


@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
def test_values_inside_a_graph_are_read_after_its_replay(
    device: GraphDevice, context: GraphContext, mode: RunMode
) -> None:
    model = Model(device, context, mode)
    model.capture()
    for size, value in ((4, 1.0), (2, 5.0), (4, 2.0)):
        assert only(model(size, value)) == (value + 1) * 6 - 1
        assert model.values(size) == {
            "layers.0.qkv": ([size, 3], value + 1),
            "layers.0.attention": ([size, 3], (value + 1) * 2),
            "layers.1.mlp": ([size, 3], (value + 1) * 6),
        }
    # Those of another graph are as its last replay left them.
    assert model.values(2)["layers.0.qkv"] == ([2, 3], 6.0)


def test_eager_run_does_not_change_the_values_of_the_graph(
    npu: NpuDevice, context: GraphContext
) -> None:
    model = Model(npu, context, RunMode.FULL)
    model.capture()
    model(4, 1.0)
    model.tokens.fill_(9.0)
    with context.run(RunMode.EAGER, KEYS[4]):
        model.run(4)
    assert model.values(4)["layers.0.qkv"] == ([4, 3], 2.0)
    assert {each.name: only(each.value) for each in model.dump.read()} == {
        "layers.0.qkv": 10.0,
        "layers.0.attention": 20.0,
        "layers.1.mlp": 60.0,
    }


def test_hook_receives_the_values_after_each_replay(npu: NpuDevice, context: GraphContext) -> None:
    model = Model(npu, context, RunMode.BREAKABLE, is_told=True)
    model.capture()
    assert not model.lines
    model(2, 1.0)
    assert model.lines[0] == (
        "layers.0.qkv: torch.float32, shape (2, 3); 2 to 2, mean 2; [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]"
    )
    assert [line.partition(":")[0] for line in model.lines[1:]] == [
        "layers.0.attention",
        "layers.1.mlp",
    ]


def test_large_values_are_cut_and_say_so(device: GraphDevice, context: GraphContext) -> None:
    limits = {"value_bytes": 2 * 12, "total_bytes": 32 + 32 + 8}
    model = Model(device, context, RunMode.FULL, limits=limits)
    model.capture()
    model(4, 1.0)
    first, second, third = model.dump.read(KEYS[4])
    assert (first.shape, first.value.tolist()) == ((4, 3), [[2.0] * 3] * 2)
    assert first.cut == "2 of 4 rows kept, 48 bytes are above the limit (value_bytes)"
    assert (second.shape, second.value.tolist()) == ((4, 3), [[4.0] * 3] * 2)
    assert (third.shape, third.value.tolist()) == ((4, 3), [12.0, 12.0])
    assert str(third).endswith(
        "[12.0, 12.0]; cut: 2 elements kept, 48 bytes are above the limit (total_bytes)"
    )
    assert [each.value.numel() for each in model.dump.read(KEYS[2])] == [0, 0, 0]


def test_nan_and_infinity_are_counted(npu: NpuDevice, context: GraphContext) -> None:
    dump = TensorDump(npu, context)
    x = torch.tensor([1.0, float("nan"), float("inf"), 3.0], device=npu.torch_device)
    assert dump.keep(x, "gate") is x
    (gate,) = dump.read()
    assert "1 to 3, mean 2; 1 NaN, 1 infinite; [1.0, nan, inf, 3.0]" in str(gate)


def test_name_that_is_used_twice_in_a_capture_is_refused(
    device: GraphDevice, context: GraphContext
) -> None:
    dump = TensorDump(device, context)
    x = torch.ones(2, device=device.torch_device)
    step = GraphedCallable(
        lambda x: dump.keep(dump.keep(x + 1, "mlp") + 1, "mlp"),
        device=device,
        context=context,
        run_mode=RunMode.FULL,
        name="model",
    )
    with (
        CaptureSession(device, context),
        context.run(RunMode.FULL, KEYS[2]),
        pytest.raises(CaptureSessionError, match="'mlp' is kept a second time"),
    ):
        step(x)


def test_graph_that_is_captured_again_has_its_values(npu: NpuDevice, context: GraphContext) -> None:
    model = Model(npu, context, RunMode.BREAKABLE)
    for value in (1.0, 2.0):
        model.capture()
        model(4, value)
        assert model.values(4)["layers.1.mlp"] == ([4, 3], (value + 1) * 6)
        model.step.release_all()
    model.dump.clear()
    assert not model.dump.read(KEYS[4])


def test_values_are_saved(npu: NpuDevice, context: GraphContext, tmp_path: Path) -> None:
    model = Model(npu, context, RunMode.FULL)
    model.capture()
    model(2, 1.0)
    model.dump.save(tmp_path / "step.pt", KEYS[2])
    saved = torch.load(tmp_path / "step.pt")
    assert saved["layers.1.mlp"]["value"].tolist() == [[12.0] * 3] * 2
    assert (saved["layers.1.mlp"]["shape"], saved["layers.1.mlp"]["cut"]) == ((2, 3), None)
