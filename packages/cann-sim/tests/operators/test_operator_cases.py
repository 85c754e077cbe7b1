"""Every row of the conformance table against float64."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cann_sim
from cann_sim.inventory.requested_operators import requested_operators
from operators.cases import CASES
from operators.operator_case import LAYOUTS, Case, make_input

WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}


@cache
def requested() -> frozenset[str]:
    spec = find_spec("torch_npu")
    assert spec is not None
    assert spec.origin is not None
    return frozenset(requested_operators([Path(spec.origin).parent / "lib" / "libtorch_npu.so"]))


def as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def compare(conformance: Any, case: Case, result: torch.Tensor, reference: torch.Tensor) -> None:
    assert result.shape == reference.shape
    if not result.is_floating_point() or not reference.is_floating_point():
        assert torch.equal(result, reference.to(result.dtype))
        return
    magnitude = torch.full((), float(case.magnitude), dtype=torch.float64)
    conformance.close(
        result,
        reference.double(),
        ulps=case.ulps,
        roundings=case.roundings,
        magnitude=magnitude,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operator.removeprefix("aclnn"))
def test_operator_in_every_layout_agrees_with_float64(conformance: Any, case: Case) -> None:
    if case.operator not in requested():
        pytest.skip(f"the installed torch_npu does not ask for {case.operator}")
    if tuple(map(int, version("torch_npu").split(".")[:2])) < case.launched_since:
        pytest.skip(f"the installed torch_npu launches another operator than {case.operator}")
    launched = cann_sim.counters()

    @settings(
        max_examples=4,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        shapes=case.strategy(),
        seed=st.integers(0, 2**16),
    )
    def check(shapes: tuple[tuple[int, ...], ...], seed: int) -> None:
        for dtype, layout in product(case.dtypes, LAYOUTS.values()):
            generator = torch.Generator().manual_seed(seed)
            inputs = [
                make_input(spec, shape, dtype, generator)
                for spec, shape in zip(case.inputs, shapes, strict=True)
            ]
            device = [layout(values.to("npu")) for values in inputs]
            results = [value.cpu() for value in as_tuple(case.call(*device))]
            wide = [values.to(WIDE.get(values.dtype, values.dtype)) for values in inputs]
            references = as_tuple((case.reference or case.call)(*wide))
            assert len(results) == len(references)
            for result, reference in zip(results, references, strict=True):
                compare(conformance, case, result, reference)

    check()
    assert (cann_sim.counters() - launched).launches_by_operator[case.operator] > 0
