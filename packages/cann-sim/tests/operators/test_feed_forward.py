"""Feed-forward layers against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_npu
from torch.nn import functional

from operators.drawn_tensors import integers, random

ROWS, WIDTH, INNER = 12, 16, 24
Function = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Function] = {
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "SiLU": lambda x: x * torch.sigmoid(x),
}
GATED = {"geglu": "gelu", "swiglu": "SiLU", "reglu": "relu"}


def on_device(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in options.items()}


def run(
    x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, activation: str, **options: Any
) -> torch.Tensor:
    weights = (first.to("npu"), second.to("npu"))
    result: torch.Tensor = torch_npu.npu_ffn(
        x.to("npu"), *weights, activation, **on_device(options)
    )
    return result.cpu()


def close(
    conformance: Any, result: torch.Tensor, reference: torch.Tensor, *, roundings: int = 1
) -> None:
    # Rounding the activation perturbs each product by half a unit of it, at most 4 here.
    off = torch.finfo(result.dtype).eps / 2 * 4 * roundings * INNER**0.5
    magnitude = reference.abs() + 8 + off / (200 * torch.finfo(torch.float32).eps)
    conformance.close(result, reference, ulps=200, magnitude=magnitude)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("fast", [0, 1])
def test_plain_layers_with_bias(
    conformance: Any, dtype: torch.dtype, activation: str, fast: int
) -> None:
    if fast and dtype == torch.bfloat16:
        pytest.skip("the fast form is one of float16")
    x = random(2, ROWS // 2, WIDTH, seed=0, dtype=dtype)
    first = random(WIDTH, INNER, seed=1, dtype=dtype, scale=0.3)
    second = random(INNER, WIDTH, seed=2, dtype=dtype, scale=0.3)
    bias_dtype = torch.float32 if dtype == torch.bfloat16 else dtype
    bias1, bias2 = (random(n, seed=n, dtype=bias_dtype) for n in (INNER, WIDTH))
    result = run(x, first, second, activation, bias1=bias1, bias2=bias2, inner_precise=fast)
    between = ACTIVATIONS[activation](x.double() @ first.double() + bias1.double())
    assert result.dtype == dtype
    close(conformance, result, between @ second.double() + bias2.double(), roundings=1 + fast)


@pytest.mark.parametrize("activation", GATED)
def test_gates_multiply_the_halves(conformance: Any, activation: str) -> None:
    x = random(ROWS, WIDTH, seed=0, dtype=torch.float16)
    first = random(WIDTH, 2 * INNER, seed=1, dtype=torch.float16, scale=0.2)
    second = random(INNER, WIDTH, seed=2, dtype=torch.float16, scale=0.2)
    result = run(x, first, second, activation, inner_precise=1)
    left, right = (x.double() @ first.double()).chunk(2, -1)
    between = ACTIVATIONS[GATED[activation]](left) * right
    close(conformance, result, between @ second.double(), roundings=2)


@pytest.mark.parametrize("ends", [False, True])
def test_rows_of_each_expert_go_through_its_layers(conformance: Any, ends: bool) -> None:
    counts = [5, 0, 4, 3]
    x = random(ROWS, WIDTH, seed=0, dtype=torch.float16)
    first = random(4, WIDTH, INNER, seed=1, dtype=torch.float16, scale=0.3)
    second = random(4, INNER, WIDTH, seed=2, dtype=torch.float16, scale=0.3)
    tokens = torch.tensor(counts).cumsum(0).tolist() if ends else counts
    name = "expert_tokens_index" if ends else "expert_tokens"
    result = run(x, first, second, "relu", **{name: tokens})
    parts = [
        torch.relu(rows.double() @ a.double()) @ b.double()
        for rows, a, b in zip(torch.split(x, counts), first, second, strict=True)
    ]
    close(conformance, result, torch.cat(parts))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_integer_weights_are_shifted_and_scaled(conformance: Any, dtype: torch.dtype) -> None:
    x = random(ROWS, WIDTH, seed=0, dtype=dtype)
    first, second = integers(WIDTH, INNER, seed=1), integers(INNER, WIDTH, seed=2)
    scale1, scale2 = (random(n, seed=n, dtype=dtype, scale=0.002) for n in (INNER, WIDTH))
    offset1, offset2 = (random(n, seed=n + 1, dtype=dtype, scale=4.0) for n in (INNER, WIDTH))
    result = run(
        x,
        first,
        second,
        "relu",
        antiquant_scale1=scale1,
        antiquant_scale2=scale2,
        antiquant_offset1=offset1,
        antiquant_offset2=offset2,
    )
    wide1 = (first.double() + offset1.double()) * scale1.double()
    wide2 = (second.double() + offset2.double()) * scale2.double()
    reference = torch.relu(x.double() @ wide1) @ wide2
    close(conformance, result, reference, roundings=4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("experts", [False, True])
def test_quantised_layers(dtype: torch.dtype, per_column: bool, experts: bool) -> None:
    counts = [7, 5] if experts else [ROWS]
    groups = len(counts)
    lead = (groups,) if experts else ()
    x = integers(ROWS, WIDTH, seed=0)
    first, second = integers(*lead, WIDTH, INNER, seed=1), integers(*lead, INNER, WIDTH, seed=2)
    bias1 = integers(*lead, INNER, seed=3).int() * 50
    scale = torch.full((groups * (INNER if per_column else 1),), 32.0)
    if per_column:
        scale = (scale + torch.arange(scale.numel()) % 3).view(*lead, INNER)
    offset = torch.arange(groups, dtype=torch.float32) - 1
    deq_dtype = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    deq1 = torch.full((*lead, INNER), 2.0**-15, dtype=deq_dtype)
    deq2 = torch.full((*lead, WIDTH), 2.0**-8, dtype=deq_dtype)
    options = {"expert_tokens": counts} if experts else {}
    result = run(
        x,
        first,
        second,
        "relu",
        bias1=bias1,
        scale=scale,
        offset=offset,
        deq_scale1=deq1,
        deq_scale2=deq2,
        output_dtype=dtype,
        **options,
    )
    begin = 0
    for expert, count in enumerate(counts):

        def own(values: torch.Tensor, index: int = expert) -> torch.Tensor:
            return values[index] if experts else values

        rows = x[begin : begin + count].double() @ own(first).double() + own(bias1).double()
        active = torch.relu((rows * 2.0**-15).to(dtype))
        between_type = torch.float16 if dtype == torch.float16 else torch.float32
        own_scale = own(scale) if per_column or experts else scale
        scaled = active.to(between_type) * own_scale.to(between_type)
        shifted = scaled + offset[expert].to(between_type)
        between = shifted.float().round().clamp(-128, 127)
        assert torch.unique(between).numel() > 10, "the test has to use the range of int8"
        expected = (between.double() @ own(second).double() * 2.0**-8).to(dtype)
        assert torch.equal(result[begin : begin + count], expected)
        begin += count


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "tanh"}, "argument 'activation'"),
        ({"expert_tokens": [3, 3]}, "argument 'expertTokens': expected all 12 rows"),
        ({"scale": torch.ones(1)}, "argument 'scale'"),
        ({"activation": "swiglu", "dtype": torch.bfloat16}, "argument 'activation'"),
    ],
)
def test_feed_forward_refuses(changes: dict[str, Any], message: str) -> None:
    dtype = changes.pop("dtype", torch.float16)
    activation = changes.pop("activation", "relu")
    lead = (2,) if "expert_tokens" in changes else ()
    with pytest.raises(RuntimeError, match=message):
        run(
            random(ROWS, WIDTH, seed=0, dtype=dtype),
            random(*lead, WIDTH, INNER, seed=1, dtype=dtype),
            random(*lead, INNER, WIDTH, seed=2, dtype=dtype),
            activation,
            **changes,
        )
