"""Real `npu::` operators in every test, on simulated CANN, and operators of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cann_sim

# Plugins and test modules import torch, and torch_npu only loads after this.
cann_sim.activate()

import torch  # noqa: E402
import torch_npu  # noqa: E402, F401
from torch import Tensor  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


def _rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor]:
    assert cos_sin_cache.shape[1] == rotary_dim
    mode = "half" if is_neox_style else "interleaved"
    turned: tuple[Tensor, Tensor] = torch.ops.npu.npu_mrope(
        positions, query, key, cos_sin_cache, head_size, rotary_mode=mode
    )
    return turned


@pytest.fixture(scope="session")
def rotary_embedding() -> Iterator[None]:
    """An operator with the name and the signature of vLLM-Ascend's."""
    library = torch.library.Library("vllm", "FRAGMENT")  # type: ignore[no-untyped-call]
    name = "npu_rotary_embedding"
    library.define(  # type: ignore[no-untyped-call]
        f"{name}(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, "
        "int rotary_dim, bool is_neox_style=True) -> (Tensor, Tensor)"
    )
    library.impl(name, _rotary_embedding, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    yield
    library._destroy()  # type: ignore[no-untyped-call]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a session of its own ask for more random graphs than the gate runs."""
    parser.addoption("--examples", type=int, default=300, help="random graphs to rewrite")
