"""An engine that captures and replays itself adopts only attn-update, for attention lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from npu_graph_runtime import NpuDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_runtime import GraphDevice

KEY = "decode"


class UpdatingEngine:
    """Captures a model once; its attention calls :meth:`attend`, in place of torch's operator."""

    def __init__(self, device: GraphDevice) -> None:
        self._device, self._graph = device, device.create_graph()
        # A worker thread of the lane updates, while this thread prepares the next step.
        self._recorder, self._lane = Recorder(device), UpdateLane(device, worker=True)

    def attend(self, layer_name: str, arguments: Mapping[str, Any]) -> torch.Tensor:
        """Launch attention: recorded in a capture, eagerly elsewhere."""
        return self._recorder.attention(layer_name, "fused_infer_attention_v1", arguments)[0]

    def capture(self, model: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Capture the model and return its output, which each step writes again."""
        pool = self._device.create_memory_pool()
        with self._recorder.recording(KEY), self._device.capture(self._graph, pool=pool):
            output = model()
        self._plan = UpdatePlan.compile(self._recorder, KEY)
        return output

    def run(self, query_sums: Sequence[int], kv_lengths: Sequence[int]) -> None:
        """Replay with the lengths of a step; returns as soon as everything is queued."""
        names = ("actual_seq_lengths", "actual_seq_lengths_kv")
        lengths = dict(zip(names, (query_sums, kv_lengths), strict=True))
        self._lane.begin(self._plan, StepParameters(key=KEY, groups={"default": lengths}))
        self._graph.replay()
        self._lane.finish()


def main() -> None:
    """Replay attention of two sequences with the lengths of each step."""
    device = NpuDevice(0)
    engine, place = UpdatingEngine(device), device.torch_device
    query = torch.randn(2, 4, 64, dtype=torch.float16).to(place)
    cache = torch.randn(8, 16, 4 * 64, dtype=torch.float16).to(place)
    table = torch.arange(8, dtype=torch.int32).reshape(2, 4).to(place)

    def attention(lengths: list[int]) -> torch.Tensor:
        arguments = {"query": query, "key": cache, "value": cache, "block_table": table}
        sizes = {"block_size": 16, "num_heads": 4, "num_key_value_heads": 4, "scale": 0.125}
        given = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": lengths}
        return engine.attend("layers.0", {**arguments, **sizes, "input_layout": "TND", **given})

    output = engine.capture(lambda: attention([1, 1]))
    for lengths in ([7, 30], [8, 31]):
        engine.run([1, 2], lengths)
        device.synchronize()
        print(lengths, torch.equal(output, attention(lengths)))


if __name__ == "__main__":
    main()
