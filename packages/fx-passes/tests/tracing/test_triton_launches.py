"""A Triton kernel that launches beside torch's dispatcher ends a trace, which names it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes
from fx_passes.tracing.triton_launches import note_triton_launches


def double(memory: Any) -> None:
    """Write in place what a step computed: nothing in the graph shows that it was written."""
    place = memory + tl.arange(0, 4)
    tl.store(place, 2 * tl.load(place))


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the kernel as Python that runs without a device."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return triton.jit(double)


def test_kernel_in_place_is_refused_by_its_name(interpreted: Any) -> None:
    x = torch.arange(4.0)

    def step() -> list[torch.Tensor]:
        y = x + 1
        for _ in range(2):
            interpreted[(1,)](y)
        return [y * 3]

    name = rf"{__name__}\.double"
    expected = f"^tracing a step: the graph lacks {name}; a kernel is launched beside"
    with pytest.raises(fx_passes.TraceError, match=expected):
        fx_passes.trace_call(step, name="a step")


def test_kernel_of_an_operator_is_in_the_graph(interpreted: Any) -> None:
    x = torch.arange(4.0)

    def launch(memory: torch.Tensor) -> torch.Tensor:
        result = memory.clone()
        interpreted[(1,)](result)
        return result

    schema = "(Tensor memory) -> Tensor"
    operator = fx_passes.KernelOperator("fx_passes_test", "doubled", schema)
    doubled = functools.partial(operator, launch)
    call = fx_passes.trace_call(lambda: [doubled(x + 1)])
    x.fill_(6.0)
    assert torch.equal(call.run()[0], torch.full((4,), 14.0))


def test_kernel_that_is_compiled_is_noted_if_a_graph_is_traced() -> None:
    kernel, x, noted = triton.jit(double), torch.arange(4.0), list[str]()

    def launch() -> torch.Tensor:
        # There is no device here that it compiles for.
        with pytest.raises(RuntimeError, match="0 active drivers"):
            kernel[(1,)](x)
        return x + 1

    with note_triton_launches(noted):
        launch()
        assert noted == []
        make_fx(launch, pre_dispatch=True)()
    assert noted == [f"{__name__}.double"]


def test_triton_is_as_before_after_a_trace() -> None:
    run = triton.runtime.JITFunction.run
    with note_triton_launches([]):
        assert triton.runtime.JITFunction.run is not run
    assert triton.runtime.JITFunction.run is run
