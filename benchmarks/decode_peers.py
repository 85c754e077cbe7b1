"""What a user of torch_npu has without these packages, as peers of bench_decode.py.

Both run the model of the example engine with attention that torch_npu itself sees, none of our
fusions, and lengths that change at each step. Inputs lie in buffers of the device, one copy each
from pinned memory, as in engines.
"""

from __future__ import annotations

import importlib
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from qwen3_engine.qwen3.attention import attend_at_once
from qwen3_engine.qwen3.model_loader import load_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from npu_graph_runtime import NpuDevice
    from qwen3_engine import StepBatch

# By name: it is a peer here, and banned elsewhere.
TORCH_NPU = "torch_npu"
INPUTS = ("input_ids", "positions", "slot_mapping", "block_table")


class Peer:
    """One model, its input buffers and what a step is after they are written.

    Args:
        folder: the checkpoint.
        device: where it runs.
        batch: of the first step, whose shapes are those of all.
        num_blocks: of the cache.
        max_length: of a sequence.
        attend: launches attention.
    """

    def __init__(
        self,
        folder: Path,
        device: NpuDevice,
        batch: StepBatch,
        *,
        num_blocks: int,
        max_length: int,
        attend: Callable[[str, Mapping[str, object]], object],
    ) -> None:
        self.model = load_model(
            folder,
            device=device.torch_device,
            num_blocks=num_blocks,
            max_length=max_length,
            attend=attend,
        )
        # No operator around it, in which torch_npu would not see the launch to update.
        self.model.attention.operator = self.model.attention._run  # type: ignore[assignment]
        self.inputs: dict[str, Any] = {
            name: getattr(batch, name).to(device.torch_device) for name in INPUTS
        }
        self._pinned = {name: getattr(batch, name).pin_memory() for name in INPUTS}

    def load(self, batch: StepBatch) -> None:
        """Copy the tensors of a step into the buffers, when the step before is done."""
        for name, buffer in self.inputs.items():
            pinned = self._pinned[name]
            pinned.copy_(getattr(batch, name))
            buffer.copy_(pinned, non_blocking=True)

    def close(self) -> None:
        """Remove the model's operator from torch."""
        self.model.attention.close()


class UpdatedGraph(Peer):
    """The step as one `torch.npu.NPUGraph`, whose lengths `NPUGraph.update` rewrites."""

    def __init__(self, folder: Path, device: NpuDevice, batch: StepBatch, **sizes: int) -> None:
        super().__init__(folder, device, batch, **sizes, attend=attend_at_once)
        npu = importlib.import_module(TORCH_NPU).npu
        self.graph = npu.NPUGraph()
        self.model.attention.step_state.load(batch.query_lengths, batch.kv_lengths)
        with torch.no_grad():
            self.model(**self.inputs)
            npu.synchronize()
            with npu.graph(self.graph, auto_dispatch_capture=True):
                self.hidden = self.model(**self.inputs)

    @torch.no_grad()
    def decode(self, batch: StepBatch) -> torch.Tensor:
        """Run one step and return its logits."""
        self.load(batch)
        self.graph.replay()
        lengths = {
            "actual_seq_lengths": list(accumulate(batch.query_lengths)),
            "actual_seq_lengths_kv": list(batch.kv_lengths),
        }
        self.graph.update(cpu_update_input=[lengths])
        return self.model.compute_logits(self.hidden)


class CompiledByNpugraphEx(Peer):
    """`torch.compile` with the backend `npugraph_ex`, which captures and updates by itself.

    Lengths are arguments of the compiled function: what Dynamo finds in a module it takes for
    constant, and compiles anew at each step.
    """

    def __init__(self, folder: Path, device: NpuDevice, batch: StepBatch, **sizes: int) -> None:
        super().__init__(folder, device, batch, **sizes, attend=_attend_functionally)
        model = self.model
        state = model.attention.step_state

        def forward(query_ends: list[int], kv_lengths: list[int], **inputs: torch.Tensor) -> Any:
            state.load_sums(query_ends, kv_lengths)
            return model(**inputs)

        self._compiled = torch.compile(forward, backend="npugraph_ex")

    @torch.no_grad()
    def decode(self, batch: StepBatch) -> torch.Tensor:
        """Run one step and return its logits; the first two compile."""
        self.load(batch)
        ends = list(accumulate(batch.query_lengths))
        hidden = self._compiled(ends, list(batch.kv_lengths), **self.inputs)
        return self.model.compute_logits(hidden)

    def close(self) -> None:
        """Forget what was compiled, which would be looked through by the next peer's steps."""
        super().close()
        torch.compiler.reset()


def _attend_functionally(layer_name: str, arguments: Mapping[str, Any]) -> None:
    del layer_name
    given = {name: value for name, value in arguments.items() if name != "out"}
    attended, _ = torch.ops.npu.npu_fused_infer_attention_score(**given)
    arguments["out"][0].copy_(attended)
