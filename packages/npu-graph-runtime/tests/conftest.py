"""Fixtures: the fake device everywhere, an NPU through cann-sim where a test asks for one."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("npu_graph_runtime.testing.device_contract")

from npu_graph_runtime import FakeDevice, GraphContext, NpuDevice  # noqa: E402


@pytest.fixture
def fake() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def context() -> GraphContext:
    return GraphContext()


@pytest.fixture(scope="session")
def npu() -> NpuDevice:
    import cann_sim

    cann_sim.activate()
    return NpuDevice()
