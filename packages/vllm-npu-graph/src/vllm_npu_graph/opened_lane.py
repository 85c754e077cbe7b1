"""The update lane of a device, as the options describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update import UpdateLane

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice
    from vllm_npu_graph.options import Options


def open_lane(device: NpuDevice, options: Options) -> UpdateLane:
    """Return a lane, which the caller owns."""
    return UpdateLane(device, updater=options.updater, native_folder=options.native_folder)
