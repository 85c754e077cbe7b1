"""The simulated device, and comparison of its operators with float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from operators.described_call import Interface
from operators.launched_operators import pytest_runtestloop, pytest_testnodedown

__all__ = ["pytest_runtestloop", "pytest_testnodedown"]

Function = Callable[..., torch.Tensor]


def pytest_configure(config: pytest.Config) -> None:
    # torch_npu warns on every other call that it does not use its internal formats, as configured.
    config.addinivalue_line("filterwarnings", "ignore:.*internal format.*:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:.*do not support double.*:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:_aminmax is deprecated:UserWarning")


class Conformance:
    """Compares a function on `npu:0` with the same function in float64 on the CPU.

    The bound follows the arithmetic of the device: inputs of half precision are exact in float32,
    the function is evaluated there (`ulps` float32 rounding errors) and its result is rounded
    `roundings` times to its dtype, half a unit in the last place each.
    """

    def bound(
        self,
        reference: torch.Tensor,
        dtype: torch.dtype,
        *,
        ulps: float = 8,
        roundings: int = 1,
        magnitude: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the largest allowed error, elementwise; `magnitude` is that of intermediates."""
        size = reference.abs() if magnitude is None else torch.maximum(magnitude, reference.abs())
        halves = 0 if dtype == torch.float32 else roundings
        rounding = torch.finfo(dtype).eps / 2 * 1.01
        smallest = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
        return (
            reference.abs() * rounding * halves + size * ulps * torch.finfo(torch.float32).eps
        ) + smallest

    def check(
        self,
        function: Function,
        *inputs: torch.Tensor,
        ulps: float = 8,
        roundings: int = 1,
        magnitude: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run `function` on both devices, compare, and return the device's result on the CPU."""
        result = function(*(tensor.to("npu") for tensor in inputs)).cpu()
        wide = [t.double() if t.is_floating_point() else t for t in inputs]
        reference = function(*wide)
        assert result.shape == reference.shape
        if not result.is_floating_point():
            assert torch.equal(result, reference.to(result.dtype))
            return result
        self.close(result, reference, ulps=ulps, roundings=roundings, magnitude=magnitude)
        return result

    def close(
        self,
        result: torch.Tensor,
        reference: torch.Tensor,
        *,
        ulps: float = 8,
        roundings: int = 1,
        magnitude: torch.Tensor | None = None,
    ) -> None:
        """Compare a result with a float64 reference within the bound."""
        finite = reference.isfinite()
        largest = torch.finfo(result.dtype).max
        special = ~finite | (reference.abs() > largest)
        expected = reference.to(result.dtype)
        assert torch.equal(result[special].isnan(), expected[special].isnan())
        numbers = special & ~expected.isnan()
        assert torch.equal(result[numbers], expected[numbers])
        reference = torch.where(special, torch.zeros_like(reference), reference)
        limit = self.bound(
            reference, result.dtype, ulps=ulps, roundings=roundings, magnitude=magnitude
        )
        error = torch.where(special, torch.zeros_like(reference), result.double() - reference).abs()
        worst = (error / limit).max().item() if error.numel() else 0.0
        assert worst <= 1, f"largest error is {worst:.3g} times the bound"

    def quantized(
        self,
        result: torch.Tensor,
        reference: torch.Tensor,
        *,
        least: int = -128,
        most: int = 127,
        slack: float = 1e-4,
    ) -> None:
        """Compare integers with float64 values before rounding.

        Each must be the nearest integer or, where the value is within `slack` of the middle between
        two, either of them; values outside the range must be at its end.
        """
        assert result.shape == reference.shape
        reference = reference.clamp(least, most)
        error = (result.double() - reference).abs()
        assert not error.isnan().any()
        worst = error.max().item() if error.numel() else 0.0
        assert worst <= 0.5 + slack, f"{worst:.4g} from the reference"


@pytest.fixture(scope="session")
def conformance() -> Conformance:
    return Conformance()


@pytest.fixture(scope="session", autouse=True)
def _device(npu: Any) -> Iterator[None]:
    yield
    npu.synchronize()


@pytest.fixture(scope="session", autouse=True)
def recorded_calls(npu: Any) -> Interface:
    """Keep the calls that operators accept, for the tests that make them again."""
    del npu
    interface = Interface()
    interface.record_calls(on=True)
    return interface


REFUSED_CALL = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
try:
    {call}
    # From the task queue torch_npu reports an error at the first call after it has noticed it.
    while True:
        torch.npu.synchronize()
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(params=["0", "1"])
def refusal_of(request: pytest.FixtureRequest, run_forked: Any) -> Callable[[str], str]:
    """Return a function that gives the error of a call, with torch_npu's task queue and without.

    In a process of its own: a refusal in the task queue ends the queue for good.
    """

    def run(call: str) -> str:
        source = REFUSED_CALL.format(call=call)
        done = run_forked(source, environment={"TASK_QUEUE_ENABLE": request.param})
        said: str = done.output or done.errors
        return said

    return run


@pytest.fixture
def internal_formats(npu: Any) -> Iterator[None]:
    """Let torch_npu cast to formats other than plain ones."""
    npu.config.allow_internal_format = True
    yield
    npu.config.allow_internal_format = False


@pytest.fixture
def views() -> Callable[[torch.dtype], dict[str, torch.Tensor]]:
    """Return tensors of one dtype in the layouts that operators meet."""

    def make(dtype: torch.dtype) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(11)
        whole = torch.randn(6, 10, 8, generator=generator).mul(3).to(dtype)
        return {
            "contiguous": whole,
            "transposed": whole.transpose(0, 2),
            "strided": whole[::2, 1:9:3, 1:],
            "offset": whole[1],
            "expanded": whole[:, :1].expand(6, 4, 8),
            "one element": whole[0, 0, :1],
            "scalar": whole[0, 0, 0],
            "empty": whole[:0],
        }

    return make
