"""SGLang's captured decode graphs on Ascend, with attention update by a lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend import NPUCudaGraphBackend

from attn_update import UpdatableGraph, UpdateLane
from npu_graph_runtime import NpuDevice
from sglang_npu_graph.graph_updates import GraphUpdates

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from attn_update import UpdaterChoice

_LOGGER = logging.getLogger("sglang.npu_graph")


class Lanes:
    """One update lane per device, shared by target and draft models.

    Args:
        updater: How they launch updates.
        native_folder: Folder of the native updater; None for its default.
    """

    def __init__(self, updater: UpdaterChoice, native_folder: str | None) -> None:
        self._updater = updater
        self._native_folder = native_folder
        self._lanes: dict[int, tuple[NpuDevice, UpdateLane]] = {}

    def of(self, index: int) -> tuple[NpuDevice, UpdateLane]:
        """Return a device and its lane."""
        if index not in self._lanes:
            device = NpuDevice(index)
            lane = UpdateLane(device, updater=self._updater, native_folder=self._native_folder)
            self._lanes[index] = (device, lane)
            # Not said by the plugin's `load`: the engine sets its log up behind that.
            told = (index, lane.updater, lane.updater_reason)
            _LOGGER.info(
                "sglang-npu-graph: hook took effect: decode graphs of npu:%d are updated by %s "
                "(%s)",
                *told,
            )
        return self._lanes[index]


class UpdatedDecodeBackend(NPUCudaGraphBackend):  # type: ignore[misc]
    """Stands for the engine's backend; the lane orders replay and update, and no fence."""

    lanes: Lanes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.device, lane = self.lanes.of(self._device_id)
        self.updates = GraphUpdates(self.device, lane)

    def capture_one(
        self, shape_key: Hashable, forward_fn: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> None:
        """Capture as the engine does, and take the graph over."""
        self.updates.forget(shape_key)
        super().capture_one(shape_key, forward_fn, *args, **kwargs)
        self.take_over(shape_key)

    def take_over(self, shape_key: Hashable) -> None:
        """Let the lane update a graph that was captured, and say so once if it cannot."""
        already_told = bool(self.updates.left_out)
        self.updates.add(shape_key, self._graphs[shape_key])
        reason = self.updates.left_out.get(shape_key)
        if reason is not None and not already_told:
            _LOGGER.warning("sglang-npu-graph leaves attention update to the engine: %s", reason)

    def replay_with_input_update(
        self,
        shape_key: Hashable,
        seq_lens: Any,
        attr_name: str | None = None,
        attr_type: Any = None,
        cpu_update_input: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Replay with other lengths: one list for all launches, or a mapping for each."""
        if self.updates.has(shape_key):
            inputs = cpu_update_input or [{str(attr_name): seq_lens}]
            self.updates.update(shape_key, inputs)
            return self._outputs[shape_key]
        if not UpdatableGraph.has_records(self._graphs[shape_key]):
            # Its attention reads the lengths on the device.
            return self.replay(shape_key, None)
        return super().replay_with_input_update(
            shape_key, seq_lens, attr_name, attr_type, cpu_update_input
        )

    def cleanup(self) -> None:
        """Forget all graphs, which the host waits for."""
        self._device_module.synchronize()
        self.updates.clear()
        super().cleanup()
