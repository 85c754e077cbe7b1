"""An engine adopts only npu-compile's captured steps, with its own keys, buffers and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, UpdateLane
from npu_compile import CapturedSteps, CompileConfig, CompileMode, compile_model
from npu_graph_runtime import GraphKey, NpuDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_runtime import GraphDevice

    InputsByKey = Mapping[GraphKey, Mapping[str, torch.Tensor]]


class ReplayingEngine:
    """Replays `model`, whose attention runs through `recorder`, on the tensors of each key."""

    def __init__(
        self,
        model: Callable[..., Any],
        device: GraphDevice,
        recorder: Recorder,
        inputs: InputsByKey,
    ) -> None:
        config = CompileConfig(mode=CompileMode.FULL, fuse=False)
        compiled, lane = compile_model(model, config, device=device), UpdateLane(device)
        self._steps = CapturedSteps(compiled, recorder=recorder, lane=lane)
        self._inputs = inputs

    def capture(self, prepare: Callable[[GraphKey], None]) -> None:
        """Capture all keys; `prepare` sets attention lengths of padding before each."""
        self._steps.capture(self._inputs, prepare)

    def run(
        self, key: GraphKey, query_sums: Sequence[int], kv_lengths: Sequence[int]
    ) -> torch.Tensor:
        """Replay with the lengths of a step; the output is valid until the next one."""
        names = ("actual_seq_lengths", "actual_seq_lengths_kv")
        lengths = {"default": dict(zip(names, (query_sums, kv_lengths), strict=True))}
        output: torch.Tensor = self._steps.run(key, self._inputs[key], lengths)
        return output


def main() -> None:
    """Capture two keys, of a model with an adapter and without, and replay both."""
    device = NpuDevice(0)
    place, recorder = device.torch_device, Recorder(device)
    query = torch.randn(2, 4, 64, dtype=torch.float16).to(place)
    cache = torch.randn(8, 16, 4 * 64, dtype=torch.float16).to(place)
    table = torch.arange(8, dtype=torch.int32).reshape(2, 4).to(place)
    scales = {"plain": 1.0, "adapted": 3.0}
    keys = {name: GraphKey(num_tokens=2, extra=(name,)) for name in scales}
    current: dict[str, Any] = {}

    def model(query: torch.Tensor) -> torch.Tensor:
        tensors = {"query": query, "key": cache, "value": cache, "block_table": table}
        sizes = {"block_size": 16, "num_heads": 4, "num_key_value_heads": 4, "scale": 0.125}
        arguments = {**tensors, **sizes, "input_layout": "TND", **current["lengths"]}
        output = recorder.attention("layers.0", "fused_infer_attention_v1", arguments)[0]
        return output * scales[current["name"]]

    def prepare(key: GraphKey) -> None:
        lengths = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": [1, 1]}
        current.update(name=key.extra[0], lengths=lengths)

    inputs = {key: {"query": query} for key in keys.values()}
    engine = ReplayingEngine(model, device, recorder, inputs)
    engine.capture(prepare)
    for name, lengths in (("plain", [7, 30]), ("adapted", [8, 31])):
        output = engine.run(keys[name], [1, 2], lengths)
        device.synchronize()
        prepare(keys[name])
        current["lengths"]["actual_seq_lengths_kv"] = lengths
        print(name, torch.equal(output, model(query)))


if __name__ == "__main__":
    main()
