"""Decode runners on the real torch_npu: what two of them share, and the calls of a step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import npu_compile
from attn_update import Recorder, RecordingError, UpdateLane
from npu_compile import CompileConfig, DecodeRunner, InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from npu_graph_runtime import NpuDevice

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def operator() -> Iterator[str]:
    library: Any = torch.library.Library("decode_runners", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("attention(Tensor value, Tensor(a!) out) -> ()")

    def attention(value: torch.Tensor, out: torch.Tensor) -> None:
        torch.mul(value, 2, out=out)

    library.impl("attention", attention, "CompositeExplicitAutograd")
    torch.library.register_fake("decode_runners::attention", lambda value, out: None, lib=library)
    yield "decode_runners::attention"
    library._destroy()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(8, 8, generator=generator), requires_grad=False)
            for _ in range(2)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            value = hidden @ weight
            out = torch.empty_like(value)
            torch.ops.decode_runners.attention(value, out)
            hidden = torch.tanh(out) + hidden
        return hidden


def make_runner(
    device: NpuDevice, model: nn.Module, operator: str, mode: str, recorder: Recorder | None
) -> DecodeRunner:
    config = CompileConfig.from_mapping(
        {"mode": mode, "capture_sizes": SIZES, "splitting_ops": [operator]}
    )
    return DecodeRunner(
        npu_compile.compile_model(model, config, device=device, dynamic_arg_dims={"hidden": (0,)}),
        inputs={"hidden": InputSpec(dtype=torch.float32, trailing_shape=(8,))},
        recorder=recorder,
        lane=None if recorder is None else UpdateLane(device),
    )


def called_of_dynamo(run: Callable[[], object]) -> set[str]:
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "torch/_dynamo" in frame.f_code.co_filename:
            seen.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def test_second_runner_whose_capture_is_refused_leaves_the_records_of_the_first(
    device: NpuDevice, operator: str
) -> None:
    model, recorder = Decoder().to(device.torch_device), Recorder(device)
    first, second = (make_runner(device, model, operator, "full", recorder) for _ in range(2))
    first.capture(lambda _: None)
    recorded = recorder.keys

    with pytest.raises(RecordingError, match="is recorded already"):
        second.capture(lambda _: None)

    assert set(recorder.keys) == set(recorded) != set()
    hidden = torch.randn(3, 8)
    found = first.run({"hidden": hidden}, {}).cpu()
    torch.testing.assert_close(found, model(hidden.to(device.torch_device)).cpu())


def test_step_of_pieces_enters_neither_dynamo_nor_its_guards(
    device: NpuDevice, operator: str
) -> None:
    model = Decoder().to(device.torch_device)
    runner = make_runner(device, model, operator, "piecewise", None)
    runner.capture(lambda _: None)
    hidden = torch.randn(3, 8)
    runner.run({"hidden": hidden}, {})
    assert called_of_dynamo(lambda: runner.run({"hidden": hidden}, {})) == set()
    assert called_of_dynamo(lambda: runner.compiled(torch.zeros(4, 8, device=device.torch_device)))
    found = runner.run({"hidden": hidden}, {}).cpu()
    torch.testing.assert_close(found, model(hidden.to(device.torch_device)).cpu())
