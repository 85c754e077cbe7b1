from __future__ import annotations

from typing import Any

import pytest
import torch

from npu_graph_runtime.devices.fake_operator import (
    returned_arguments,
    schema_name,
    written_arguments,
)
from npu_graph_runtime.torch_internals import run_python_kernel

ATEN = torch.ops.aten
X, Y = torch.ones(2), torch.zeros(2)


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "written", "returned"),
    [
        (ATEN.add.Tensor, (X, Y), {}, [], None),
        (ATEN.add_.Tensor, (X, Y), {}, [X], [X]),
        (ATEN.add.out, (X, Y), {"out": Y}, [Y], [Y]),
        (ATEN.add.out, (X, X), {"out": torch.empty(0)}, None, None),
        (ATEN.max.dim_max, (X, 0), {"max": X, "max_values": Y}, [X, Y], [X, Y]),
        (ATEN._foreach_add_.Scalar, ([X, Y], 1), {}, [X, Y], []),
        (ATEN._native_batch_norm_legit.default, (X, None, None, X, Y), {}, [X, Y], None),
    ],
)
def test_operator_writes_and_returns_what_its_schema_says(
    operator: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    written: list[torch.Tensor] | None,
    returned: list[torch.Tensor] | None,
) -> None:
    if written is not None:
        found = written_arguments(operator, args, kwargs)
        assert [id(tensor) for tensor in found] == [id(tensor) for tensor in written]
    results = returned_arguments(operator, args, kwargs)
    assert (results is None) is (returned is None)
    assert [id(tensor) for tensor in results or []] == [id(tensor) for tensor in returned or []]


def test_operator_of_aten_is_not_python() -> None:
    assert run_python_kernel(ATEN.add.Tensor, (X, Y), {}) is None
    assert schema_name(ATEN.add.Tensor) == "aten::add"


@pytest.mark.parametrize("key", ["CPU", "CompositeExplicitAutograd"])
def test_operator_registered_from_python_is_found_and_run(key: str) -> None:
    with torch.library._scoped_library("fake_operator_test", "FRAGMENT") as library:
        library.define("double.named(Tensor x) -> Tensor")
        library.define("other(Tensor x) -> Tensor")
        library.impl("double.named", lambda x: x * 2, key)
        operator = torch.ops.fake_operator_test.double.named
        other = torch.ops.fake_operator_test.other.default
        assert run_python_kernel(other, (X,), {}) is None
        for given in ({}, {"device": "cpu"}):
            run = run_python_kernel(operator, (X,), {}, **given)
            assert run is not None
            assert run().tolist() == [2.0, 2.0]
        assert run_python_kernel(operator, (), {"x": X}, device="cpu") is not None
