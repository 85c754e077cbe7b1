"""Fixtures: the fake device, and an NPU through cann-sim."""

from __future__ import annotations

import pytest

import cann_sim

# torch loads torch_npu by itself, and torch_npu loads only after this.
cann_sim.activate()

from npu_graph_runtime import FakeDevice, GraphContext, NpuDevice  # noqa: E402

pytest_plugins = "cann_sim.pytest_plugin"


@pytest.fixture
def fake() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def context() -> GraphContext:
    return GraphContext()


@pytest.fixture(scope="session")
def npu() -> NpuDevice:
    return NpuDevice()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cycles", type=int, default=10, help="cycles of sleep and wake")
    parser.addoption("--models", type=int, default=16, help="random models, captured in segments")
    parser.addoption("--calls", type=int, default=1000, help="random calls of graphed functions")
    parser.addoption("--fx-compilers", default="npugraph_ex", help="those of torch_npu, by comma")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fx_compiler" in metafunc.fixturenames:
        names = str(metafunc.config.getoption("--fx-compilers"))
        metafunc.parametrize("fx_compiler", names.split(","))


@pytest.fixture
def num_models(request: pytest.FixtureRequest) -> int:
    models: int = request.config.getoption("--models")
    return models


@pytest.fixture
def num_calls(request: pytest.FixtureRequest) -> int:
    calls: int = request.config.getoption("--calls")
    return calls
