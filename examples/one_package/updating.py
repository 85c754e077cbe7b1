"""An engine that captures and replays itself adopts attn-update alone, for attention's lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from npu_graph_runtime import GraphDevice

KEY = "decode"


class UpdatingEngine:
    """Captures a model once; its attention calls :meth:`attend`, in place of torch's operator."""

    def __init__(self, device: GraphDevice) -> None:
        self._device, self._graph = device, device.create_graph()
        self._recorder, self._lane = Recorder(device), UpdateLane(device)

    def attend(self, layer_name: str, arguments: Mapping[str, Any]) -> torch.Tensor:
        """Launch attention: recorded in a capture, at once elsewhere."""
        return self._recorder.attention(layer_name, "fused_infer_attention_v1", arguments)[0]

    def capture(self, model: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Capture the model and return its output, which each step writes again."""
        pool = self._device.create_memory_pool()
        with self._recorder.recording(KEY), self._device.capture(self._graph, pool=pool):
            output = model()
        self._plan = UpdatePlan.compile(self._recorder, KEY)
        return output

    def run(self, query_sums: Sequence[int], kv_lengths: Sequence[int]) -> None:
        """Replay with the lengths of a step; returns as soon as all is queued."""
        names = ("actual_seq_lengths", "actual_seq_lengths_kv")
        lengths = dict(zip(names, (query_sums, kv_lengths), strict=True))
        self._lane.begin(self._plan, StepParameters(key=KEY, groups={"default": lengths}))
        self._graph.replay()
        self._lane.finish()
