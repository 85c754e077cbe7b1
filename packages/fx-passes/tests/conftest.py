"""Real `npu::` operators in every test, on simulated CANN, and operators of engines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cann_sim

# Plugins and test modules import torch, and torch_npu only loads after this.
cann_sim.activate()

import torch  # noqa: E402
import torch_npu  # noqa: E402, F401
from torch import Tensor  # noqa: E402

pytest_plugins = "cann_sim.pytest_plugin"
# So that a test file finds what folders of tests share, also where it is run alone.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _implement(
    library: torch.library.Library,
    schema: str,
    function: Callable[..., Tensor | tuple[Tensor, ...]],
) -> None:
    """Define an operator whose kernel may write or return its arguments, as the engine's do.

    Its schema and its meta kernel say nothing of that; torch takes it for a function.
    """

    def as_new(*arguments: object) -> Tensor | tuple[Tensor, ...]:
        made = function(*arguments)
        return made.clone() if isinstance(made, Tensor) else tuple(each.clone() for each in made)

    name = library.define(schema)  # type: ignore[no-untyped-call]
    for key in ("CPU", "PrivateUse1"):
        library.impl(name, function, key)  # type: ignore[no-untyped-call]
    library.impl(name, as_new, "Meta")  # type: ignore[no-untyped-call]


def _turned(rows: Tensor, x: Tensor, head_size: int) -> Tensor:
    """Rotate the halves of each head by the angles of `rows` [T, rotary_dim]."""
    heads = x.reshape(len(x), -1, head_size)
    cos, sin = rows.unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]
    first, second, rest = heads.split([half, half, head_size - 2 * half], -1)  # type: ignore[no-untyped-call]
    parts = [first * cos - second * sin, second * cos + first * sin, rest]
    return torch.cat(parts, -1).reshape(x.shape)


def _rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor]:
    """Turn contiguous queries and keys where they are and return them; others are copied."""
    assert cos_sin_cache.shape[1] == rotary_dim
    if query.is_meta:
        return query, key
    if query.device.type == "npu":
        mode = "half" if is_neox_style else "interleaved"
        turned: tuple[Tensor, Tensor] = torch.ops.npu.npu_mrope(
            positions, query, key, cos_sin_cache, head_size, rotary_mode=mode
        )
    else:
        rows = cos_sin_cache[positions]
        turned = (_turned(rows, query, head_size), _turned(rows, key, head_size))
    given = [each if each.is_contiguous() else each.clone() for each in (query, key)]
    return given[0].copy_(turned[0]), given[1].copy_(turned[1])


@pytest.fixture(scope="session")
def rotary_embedding() -> Iterator[None]:
    """An operator with the name and the signature of vLLM-Ascend's."""
    library = torch.library.Library("vllm", "FRAGMENT")  # type: ignore[no-untyped-call]
    schema = (
        "npu_rotary_embedding(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, "
        "int head_size, int rotary_dim, bool is_neox_style=True) -> (Tensor, Tensor)"
    )
    _implement(library, schema, _rotary_embedding)
    yield
    library._destroy()  # type: ignore[no-untyped-call]


def _add_rms_norm_bias(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor | None = None, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    total = x1.float() + x2.float()
    rstd = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + epsilon)
    normed = total * rstd * gamma.float()
    if beta is not None:
        normed = normed + beta.float()
    return normed.to(x1.dtype), rstd, total.to(x1.dtype)


def _quantize(
    in_tensor: Tensor, input_scale: Tensor, input_scale_reciprocal: Tensor, input_offset: Tensor
) -> Tensor:
    del input_scale
    quantized: Tensor = torch.ops.npu.npu_quantize(
        in_tensor, input_scale_reciprocal, input_offset, torch.qint8, -1, False
    )
    return quantized


@dataclass
class EngineState:
    """The state that operators of vLLM-Ascend read from the engine at each call.

    Attributes:
        gathers: Whether rows are spread over two ranks; the other rank has the same in reverse.
        padding: Number of gathered rows that are padding.
    """

    gathers: bool = False
    padding: int = 0

    def gather(self, x: Tensor, label: bool, is_ep_comm: bool = False) -> Tensor:
        """Return the rows of both ranks without padding, or those of this rank."""
        del is_ep_comm
        if not self.gathers or not label:
            return x
        rows = torch.cat([x, x.flip(0)])
        return rows[: len(rows) - self.padding]

    def chunk_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the part of a residual that belongs to the rows of x."""
        return residual if len(x) == len(residual) else residual[: len(x)]


def _all_gather(tensor: Tensor, dim: int, world_size: int, group_name: str) -> Tensor:
    """Of two ranks that have the same."""
    del group_name
    return torch.cat([tensor] * world_size, dim)


def _sequence_chunk(x: Tensor) -> Tensor:
    """Of the first of two ranks."""
    return x[: (len(x) + 1) // 2]


def _gemm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def _all_reduce(tensor: Tensor, group_name: str) -> Tensor:
    """In place, as on NPUs: of one rank, or in a group called `two` of two that have the same.

    Several ranks are run by whoever rewrites the call.
    """
    return tensor.mul_(2) if group_name.startswith("two") else tensor


def _reduce(x: Tensor, is_ep_comm: bool = False) -> Tensor:
    """In place, of two ranks that have the same and in a state in which nothing is scattered."""
    del is_ep_comm
    return x.mul_(2)


def _ir_rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    wide = x.float()
    squares = wide[..., :variance_size].square().mean(-1, keepdim=True)
    normed = wide * torch.rsqrt(squares + epsilon)
    return (normed if weight is None else normed.to(weight.dtype) * weight).to(x.dtype)


def _ir_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    total = x.float() + x_residual.float()
    return _ir_rms_norm(total, weight, epsilon, variance_size).to(x.dtype), total.to(x.dtype)


@pytest.fixture(scope="session")
def engine_operators() -> Iterator[EngineState]:
    """Operators with the names, signatures and meaning of vLLM's and vLLM-Ascend's."""
    state = EngineState()
    vllm = torch.library.Library("vllm", "FRAGMENT")  # type: ignore[no-untyped-call]
    ascend = torch.library.Library("_C_ascend", "FRAGMENT")  # type: ignore[no-untyped-call]
    ir = torch.library.Library("vllm_ir", "FRAGMENT")  # type: ignore[no-untyped-call]
    norm_end = "Tensor? weight, float epsilon, SymInt? variance_size=None"
    norm = (
        "npu_add_rms_norm_bias(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, "
        "float epsilon=1e-6) -> (Tensor y, Tensor rstd, Tensor x)"
    )
    quantize = (
        "quantize(Tensor in_tensor, Tensor input_scale, Tensor input_scale_reciprocal, "
        "Tensor input_offset) -> Tensor"
    )
    functions = (
        (ascend, norm, _add_rms_norm_bias),
        (vllm, quantize, _quantize),
        (ir, f"rms_norm(Tensor x, {norm_end}) -> Tensor", _ir_rms_norm),
        (
            ir,
            f"fused_add_rms_norm(Tensor x, Tensor x_residual, {norm_end}) -> (Tensor, Tensor)",
            _ir_add_rms_norm,
        ),
        (vllm, "all_reduce(Tensor tensor, str group_name) -> Tensor", _all_reduce),
        (
            vllm,
            "maybe_all_reduce_tensor_model_parallel(Tensor final_hidden_states) -> Tensor",
            _reduce,
        ),
        (vllm, "maybe_pad_and_reduce(Tensor x, bool is_ep_comm=False) -> Tensor", _reduce),
        (
            vllm,
            "all_gather(Tensor tensor, SymInt dim, SymInt world_size, str group_name) -> Tensor",
            _all_gather,
        ),
        (vllm, "sequence_parallel_chunk_impl(Tensor x) -> Tensor", _sequence_chunk),
        (vllm, "unquantized_gemm(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor", _gemm),
        (
            vllm,
            "maybe_all_gather_and_maybe_unpad(Tensor x, bool label, bool is_ep_comm=False)->Tensor",
            state.gather,
        ),
        (
            vllm,
            "maybe_chunk_residual(Tensor x, Tensor residual) -> Tensor",
            state.chunk_residual,
        ),
    )
    for library, schema, function in functions:
        _implement(library, schema, function)
    yield state
    for library in (vllm, ascend, ir):
        library._destroy()  # type: ignore[no-untyped-call]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the session that runs more random graphs than the gate."""
    parser.addoption("--examples", type=int, default=300, help="random graphs to rewrite")
    parser.addoption(
        "--programs", type=int, default=24, help="programs of writes and views to rewrite"
    )
    parser.addoption("--samples", type=int, default=1, help="samples of each operator")
    parser.addoption(
        "--every-architecture", action="store_true", help="raise every decoder of transformers"
    )
    parser.addoption("--write", action="store_true", help="write docs/architectures.md")
    parser.addoption("--first-program", type=int, default=0, help="seed of the first of them")


@pytest.fixture
def num_samples(request: pytest.FixtureRequest) -> int:
    """Number of samples tried per operator of torch, alternating between dtypes."""
    samples: int = request.config.getoption("--samples")
    return samples
