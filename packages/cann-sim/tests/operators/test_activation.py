"""Activation functions and softmax against float64."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch_npu

from operators import drawn_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "softplus": F.softplus,
    "leaky relu": F.leaky_relu,
    "elu": F.elu,
    "glu": F.glu,
    "softmax": lambda x: x.softmax(-1),
    "softmax first": lambda x: x.softmax(0),
    "log softmax": lambda x: x.log_softmax(-1),
}
random = partial(drawn_tensors.random, scale=3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_rounded_once(conformance: Any, name: str, dtype: torch.dtype) -> None:
    magnitude = torch.tensor(16.0).double()
    for values in (
        random(5, 32, dtype=dtype),
        random(32, 6, dtype=dtype).t()[::2],
        random(1, 2, dtype=dtype),
        random(0, 8, dtype=dtype),
    ):
        conformance.check(ACTIVATIONS[name], values, ulps=16, magnitude=magnitude)


def test_softmax_of_large_scores_does_not_overflow() -> None:
    scores = torch.tensor([[1e4, 1e4 - 1, -1e4]]).to("npu")
    torch.testing.assert_close(scores.softmax(-1).cpu(), scores.cpu().softmax(-1))
    assert scores.sub(float("inf")).softmax(-1).isnan().all().item()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_swiglu_splits_its_dimension(conformance: Any, dtype: torch.dtype, dim: int) -> None:
    values = random(4, 6, 8, dtype=dtype)
    result = torch_npu.npu_swiglu(values.to("npu"), dim=dim).cpu()
    gate, up = values.double().chunk(2, dim)
    conformance.close(result, F.silu(gate) * up, ulps=16)


def test_swiglu_of_an_odd_dimension_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"SwiGlu|swiglu"):
        torch_npu.npu_swiglu(torch.ones(2, 5).to("npu"))


@pytest.mark.parametrize("name", ["relu_", "sigmoid_", "tanh_"])
def test_inplace_activation_equals_reference(name: str) -> None:
    values = random(4, 6, dtype=torch.float32)
    result = getattr(values.to("npu"), name)().cpu()
    torch.testing.assert_close(result, getattr(values.clone(), name)())
    for function in (F.hardswish, F.hardsigmoid, F.mish):
        result = function(values.to("npu"), inplace=True).cpu()
        torch.testing.assert_close(result, function(values))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu_of_torch_is_the_tanh_form(conformance: Any, dtype: torch.dtype, form: str) -> None:
    values, magnitude = random(5, 32, dtype=dtype), torch.tensor(16.0).double()
    result = F.gelu(values.to("npu"), approximate=form).cpu()
    conformance.close(
        result, F.gelu(values.double(), approximate="tanh"), ulps=16, magnitude=magnitude
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_forms_of_torch_npu(conformance: Any, dtype: torch.dtype) -> None:
    values = random(4, 6, dtype=dtype)
    magnitude = torch.tensor(16.0).double()
    for form in ("none", "tanh"):
        result = torch_npu.npu_gelu(values.to("npu"), approximate=form).cpu()
        conformance.close(result, F.gelu(values.double(), approximate=form), magnitude=magnitude)
    wide = values.double()
    result = torch_npu.fast_gelu(values.to("npu")).cpu()
    conformance.close(result, wide * torch.sigmoid(1.702 * wide), magnitude=magnitude)
