"""What tests of code on device graphs share: the contract of a device, and attention to try.

`npu_graph_testing.attention` needs attn-update (the extra ``attention``); the rest needs
npu-graph-runtime, whose `FakeDevice` is the device to test on without any other.
"""

from npu_graph_testing.__about__ import __version__
from npu_graph_testing.device_contract import DeviceContract

__all__ = ["DeviceContract", "__version__"]
