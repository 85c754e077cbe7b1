"""Test support for code on device graphs: a contract suite for devices, and attention models.

`npu_graph_testing.attention` needs attn-update (the extra ``attention``). The rest needs only
npu-graph-runtime, whose `FakeDevice` needs no hardware.
"""

from npu_graph_testing.__about__ import __version__
from npu_graph_testing.device_contract import DeviceContract

__all__ = ["DeviceContract", "__version__"]
