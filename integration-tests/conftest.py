"""Everything here runs on the real torch_npu over simulated CANN, by public names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cann_sim

cann_sim.activate()

import torch  # noqa: E402

from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine.tiny_checkpoint import write_tiny_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


pytest_plugins = "cann_sim.pytest_plugin"


@pytest.fixture(scope="session")
def device() -> NpuDevice:
    return NpuDevice()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("qwen3"), dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def half_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("qwen3_half"), dtype=torch.float16)
