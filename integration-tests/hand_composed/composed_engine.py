"""A decoder of one layer, and an engine that composes graphs and attention updates by hand."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import NpuDevice

HEADS, WIDTH, BLOCK, COLUMNS = 2, 16, 16, 3
ROWS = 2
KEY = GraphKey(num_tokens=ROWS)
OTHER = GraphKey(num_tokens=ROWS, extra=("other",))
LENGTHS = ([5, 40], [1, 33], [48, 2])


class Decoder(nn.Module):
    """One layer that reads its lengths from an attribute, as no engine's model does."""

    def __init__(self, device: NpuDevice, attend: Callable[..., Any] | None = None) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shape = (ROWS * COLUMNS, BLOCK, HEADS * WIDTH)
        place = device.torch_device
        self.cache = [torch.randn(shape, generator=generator).half().to(place) for _ in range(2)]
        table = torch.arange(ROWS * COLUMNS, dtype=torch.int32).view(ROWS, COLUMNS)
        self.table = table.to(place)
        self.lengths = [1] * ROWS
        self.attend = attend or torch.ops.npu.npu_fused_infer_attention_score

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        given = {
            "query": hidden.view(-1, HEADS, WIDTH),
            "key": self.cache[0],
            "value": self.cache[1],
            "block_table": self.table,
            "block_size": BLOCK,
            "input_layout": "TND",
            "num_heads": HEADS,
            "scale": WIDTH**-0.5,
            "actual_seq_lengths": list(range(1, ROWS + 1)),
            "actual_seq_lengths_kv": self.lengths,
        }
        output: torch.Tensor = self.attend(**given)[0]
        return output.view(hidden.shape) + hidden


def parameters(lengths: list[int]) -> dict[str, dict[str, list[int]]]:
    ends = list(range(1, ROWS + 1))
    return {"default": {"actual_seq_lengths": ends, "actual_seq_lengths_kv": lengths}}


def draw(lengths: list[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(lengths[0])
    return torch.randn(ROWS, HEADS * WIDTH, generator=generator).half()


class Engine:
    """An engine that takes the runtime and the updates, and composes them itself."""

    def __init__(self, device: NpuDevice, **given: Any) -> None:
        self.device = device
        self.recorder, self.context = Recorder(device), GraphContext()
        kind = "fused_infer_attention_v1"
        self.model = Decoder(device, lambda **call: self.recorder.attention("layer", kind, call))
        self.graphed = GraphedCallable(
            self.model,
            device=device,
            context=self.context,
            run_mode=RunMode.FULL,
            name="decode",
            **given,
        )
        self.lane = UpdateLane(device)
        self.hidden = draw([1, 1]).to(device.torch_device)

    def call(self, key: GraphKey, mode: RunMode = RunMode.FULL) -> Any:
        with self.context.run(mode, key):
            return self.graphed(self.hidden)

    def capture(self, key: GraphKey, *, lazily: bool = False) -> UpdatePlan:
        session = nullcontext() if lazily else CaptureSession(self.device, self.context)
        with session, self.recorder.recording(key):
            self.call(key)
        return UpdatePlan.compile(self.recorder, key)

    def assert_right(self, plan: UpdatePlan) -> None:
        key: Any = plan.key
        for lengths in LENGTHS:
            step = StepParameters(key=key, groups=parameters(lengths))
            found = self.lane.run(plan, step, partial(self.call, key)).cpu()
            self.model.lengths = lengths
            assert torch.equal(found, self.model(self.hidden).cpu())
