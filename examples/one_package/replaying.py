"""An engine takes npu-compile's captured steps alone: keys, buffers and lengths are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import UpdateLane
from npu_compile import CapturedSteps, CompileConfig, CompileMode, compile_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from attn_update import Recorder
    from npu_graph_runtime import GraphDevice, GraphKey

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
        """Capture all keys; `prepare` gives attention lengths of padding before each."""
        self._steps.capture(self._inputs, prepare)

    def run(
        self, key: GraphKey, query_sums: Sequence[int], kv_lengths: Sequence[int]
    ) -> torch.Tensor:
        """Replay with the lengths of a step; the output is valid until the next one."""
        names = ("actual_seq_lengths", "actual_seq_lengths_kv")
        lengths = {"default": dict(zip(names, (query_sums, kv_lengths), strict=True))}
        output: torch.Tensor = self._steps.run(key, self._inputs[key], lengths)
        return output
