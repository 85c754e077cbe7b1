"""Test support for implementations of the device seam."""

from npu_graph_runtime.testing.device_contract import DeviceContract

__all__ = ["DeviceContract"]
