from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from npu_graph_runtime import InputAddressError
from npu_graph_runtime.input_layout import InputLayout

X, Y = torch.zeros(4, 2), torch.zeros(4)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


@pytest.mark.parametrize(
    ("args", "kwargs", "other_args", "other_kwargs", "path"),
    [
        ((X, 3, Y), {}, (X, 3, _fresh(Y)), {}, "args[2]"),
        ((X,), {"mask": Y}, (X,), {"mask": _fresh(Y)}, "mask"),
        (([X, Y],), {}, ([X, _fresh(Y)],), {}, "args[0][1]"),
        ((), {"meta": {"k": (X, Y)}}, (), {"meta": {"k": (_fresh(X), Y)}}, "meta['k'][0]"),
    ],
)
def test_input_layout_moved_tensor_is_named(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    other_args: tuple[Any, ...],
    other_kwargs: dict[str, Any],
    path: str,
) -> None:
    layout = InputLayout(args, kwargs, "'decode'")
    layout.check_addresses(args, kwargs)
    layout.check_layouts(args, kwargs)
    for check in (layout.check_addresses, layout.check_layouts):
        with pytest.raises(
            InputAddressError, match=f"replaying 'decode': 1 of .*{re.escape(path)}"
        ):
            check(other_args, other_kwargs)


def test_input_layout_missing_and_additional_tensors_are_named() -> None:
    layout = InputLayout((X, Y), {"mask": Y}, "'decode'")
    with pytest.raises(InputAddressError, match=r"args\[1\] is not a tensor now"):
        layout.check_addresses((X, None), {"mask": Y})
    with pytest.raises(InputAddressError, match=r"args\[1\] is not a tensor now"):
        layout.check_addresses((X,), {"mask": Y})
    with pytest.raises(InputAddressError, match="mask is not a tensor now"):
        layout.check_addresses((X, Y), {})
    with pytest.raises(InputAddressError, match="bias is a tensor now"):
        layout.check_layouts((X, Y), {"mask": Y, "bias": Y})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (X.view(2, 4), r"shape \(2, 4\)"),
        (X.view(torch.int32), "torch.int32"),
        (torch.as_strided(X, (4, 2), (1, 4)), r"stride \(1, 4\)"),
    ],
)
def test_input_layout_other_layout_at_same_address_found_by_layout_check(
    other: torch.Tensor, message: str
) -> None:
    layout = InputLayout((X,), {}, "'decode'")
    layout.check_addresses((other,), {})
    with pytest.raises(InputAddressError, match=message):
        layout.check_layouts((other,), {})


def test_input_layout_other_values_are_not_compared() -> None:
    layout = InputLayout((X, 3), {"n": None}, "'decode'")
    layout.check_addresses((X, 4), {"n": "x"})
    layout.check_layouts((X, 4), {"n": "x"})
