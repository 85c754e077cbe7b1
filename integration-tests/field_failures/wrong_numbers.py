"""NaN and overflow: where they come from is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from field_failures.field_failure import Failing, field_failure
from field_failures.layered_model import KEY, TOKENS, WIDTH, CapturedLayers, LayeredModel
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    RunMode,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import find_first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import NpuDevice


@field_failure("sglang#1779", "sglang#1571", names=("'layers.1.attention'", "gave NaN"))
def attention_over_no_tokens(device: NpuDevice) -> Iterator[Failing]:
    """Sequences of the padding have the length 0, and the mean of nothing is NaN."""
    model = LayeredModel(device)
    captured = CapturedLayers(model).capture()
    model.lengths[1] = 0
    yield captured.difference


@field_failure("vllm-ascend#6332", names=("segment 3 (layers.2.qkv)", "gave NaN"))
def overflow_of_half_precision(device: NpuDevice) -> Iterator[Failing]:
    """A value that fits in bfloat16 is infinite in float16, and the next difference is NaN."""
    scale = torch.ones(1, device=device.torch_device, dtype=torch.float16)
    model = LayeredModel(device)

    def half(index: int, x: torch.Tensor) -> torch.Tensor:
        wide = x.half().abs() * scale
        return (wide - wide.max()).float() if index == 2 else x

    model.in_layer = half
    captured = CapturedLayers(model).capture()
    model.hidden.fill_(300.0)
    scale.fill_(60_000.0)
    yield captured.difference


@field_failure("vllm#37442", names=("segment 2 (layers.0.mlp)", "gave NaN", "in the graph"))
def rows_of_the_padding_that_attention_does_not_write(device: NpuDevice) -> Iterator[Failing]:
    """NaN of an earlier step in rows that nobody writes reaches all rows by a common scale."""
    context, num_real = GraphContext(), [TOKENS]

    def attend(x: torch.Tensor, out: torch.Tensor, layer: str) -> None:
        del layer
        out[: num_real[0]] = x[: num_real[0]]

    def qkv(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 1.0, torch.empty_like(x)

    def quantised(out: torch.Tensor) -> torch.Tensor:
        return out / out.abs().max()

    attention = runs_eagerly(context)(attend)
    projection = runs_captured(context, "layers.0.qkv")(qkv)
    quantise = runs_captured(context, "layers.0.mlp")(quantised)

    def decode(x: torch.Tensor) -> torch.Tensor:
        value, out = projection(x)
        attention(value, out, "layers.0.attention")
        return quantise(out)

    graphed = GraphedCallable(
        decode, device=device, context=context, run_mode=RunMode.BREAKABLE, name="decode"
    )
    hidden = torch.ones(TOKENS, WIDTH, device=device.torch_device)

    def step() -> object:
        with context.run(RunMode.BREAKABLE, KEY):
            return graphed(hidden)

    with CaptureSession(device, context):
        step()
    hidden.fill_(float("nan"))
    step()
    device.synchronize()
    hidden.fill_(1.0)
    num_real[0] = 1
    yield lambda: find_first_difference(step, [graphed])


FAILURES = (
    attention_over_no_tokens,
    overflow_of_half_precision,
    rows_of_the_padding_that_attention_does_not_write,
)
