"""The contract over every implementation of the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime.testing import DeviceContract

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice, GraphDevice, NpuDevice


class TestFakeDevice(DeviceContract):
    @pytest.fixture
    def device(self, fake: FakeDevice) -> GraphDevice:
        return fake


class TestNpuDevice(DeviceContract):
    @pytest.fixture
    def device(self, npu: NpuDevice) -> GraphDevice:
        return npu
