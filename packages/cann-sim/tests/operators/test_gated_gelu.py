"""GELU of one half times the other half."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch_npu
from torch.nn import functional

from operators import drawn_tensors

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
FORMS = {0: "none", 1: "tanh"}
random = partial(drawn_tensors.random, scale=3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [True, False])
def test_geglu_activates_one_half(
    conformance: Any, dtype: torch.dtype, dim: int, form: int, left: bool
) -> None:
    values = random(4, 6, 8, dtype=dtype)

    product, activated = torch_npu.npu_geglu(
        values.to("npu"), dim=dim, approximate=form, activate_left=left
    )

    first, second = values.double().chunk(2, dim)
    gate, up = (first, second) if left else (second, first)
    gelu = functional.gelu(gate, approximate=FORMS[form])
    magnitude = torch.tensor(64.0).double()
    conformance.close(activated.cpu(), gelu, magnitude=magnitude)
    conformance.close(product.cpu(), gelu * up, magnitude=magnitude)


def test_geglu_of_an_odd_dimension_is_refused() -> None:
    with pytest.raises(RuntimeError, match="GeGlu"):
        torch_npu.npu_geglu(torch.ones(2, 5).to("npu"))
