"""The contract over every implementation of the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime import FakeDevice
from npu_graph_testing import DeviceContract

if TYPE_CHECKING:
    from npu_graph_runtime import GraphDevice, NpuDevice


class TestFakeDevice(DeviceContract):
    @pytest.fixture
    def device(self, fake: FakeDevice) -> GraphDevice:
        return fake


class TestHeldDevice(DeviceContract):
    @pytest.fixture(params=[False, True], ids=["no_queue", "launch_queue"])
    def device(self, request: pytest.FixtureRequest) -> GraphDevice:
        return FakeDevice(is_held=True, has_launch_queue=request.param)


class TestNpuDevice(DeviceContract):
    @pytest.fixture
    def device(self, npu: NpuDevice) -> GraphDevice:
        return npu
