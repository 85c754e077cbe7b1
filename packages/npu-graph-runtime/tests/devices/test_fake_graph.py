from __future__ import annotations

import pytest
import torch

from npu_graph_runtime.devices.fake_graph import Launch, poison


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int8, -128),
        (torch.int64, torch.iinfo(torch.int64).min),
        (torch.uint8, 0),
        (torch.bool, True),
    ],
)
def test_poison_of_integer_dtype_is_its_smallest_value(dtype: torch.dtype, expected: int) -> None:
    tensor = torch.ones(6, dtype=dtype)
    poison(tensor[2:4])
    assert tensor.tolist() == [expected] * 6


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
def test_poison_of_floating_dtype_is_nan_in_whole_memory(dtype: torch.dtype) -> None:
    tensor = torch.ones(6, dtype=dtype)
    poison(tensor[::2])
    assert tensor.isnan().all()


def test_launch_become_takes_arguments_and_outputs() -> None:
    x, first, second = torch.ones(2), torch.zeros(2), torch.zeros(2)
    launch = Launch(torch.ops.aten.mul.Tensor, (x, 2.0), {}, (first,))
    launch.run()
    launch.become(Launch(torch.ops.aten.mul.Tensor, (x, 3.0), {}, (second,)))
    launch.run()
    assert (first.tolist(), second.tolist()) == ([2.0, 2.0], [3.0, 3.0])
