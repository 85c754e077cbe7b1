"""The contract over every implementation of the seam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npu_graph_runtime import CudaDevice, FakeDevice
from npu_graph_runtime.errors import DeviceUnavailableError, FeatureNotSupportedError
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


class TestCudaDevice(DeviceContract):
    """Runs only with a GPU; CUDA has no task groups."""

    @pytest.fixture
    def device(self) -> GraphDevice:
        try:
            return CudaDevice()
        except DeviceUnavailableError as error:
            pytest.skip(str(error))

    def test_task_update_changes_later_replays_only(self, device: GraphDevice) -> None:
        with pytest.raises(FeatureNotSupportedError, match="CUDA has no task groups"):
            device.begin_task_update(device.create_stream(), object())

    def test_replay_first_update_after_uses_new_arguments(self, device: GraphDevice) -> None:
        with pytest.raises(FeatureNotSupportedError, match="CUDA has no task groups"):
            device.end_task_group(device.create_stream())
