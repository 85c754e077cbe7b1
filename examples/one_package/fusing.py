"""An engine adopts only fx-passes: it fuses the graphs that Dynamo traces, and runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes import default_npu_pipeline
from npu_graph_runtime import NpuDevice

if TYPE_CHECKING:
    from collections.abc import Callable


class FusingEngine:
    """Runs a model with fusions; `fused` counts them by rule, over all graphs of the model."""

    def __init__(self, model: Callable[..., torch.Tensor]) -> None:
        self.fused: dict[str, int] = {}
        self._pipeline = default_npu_pipeline()
        self.step: Callable[..., Any] = torch.compile(model, backend=self._compile)

    def _compile(self, graph_module: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        report = self._pipeline.run(graph_module).report
        for rule, count in report.match_counts().items():
            self.fused[rule] = self.fused.get(rule, 0) + count
        return graph_module.forward


def main() -> None:
    """Fuse the addition and the norm of a layer."""
    place = NpuDevice(0).torch_device
    x, weight = torch.ones(4, 16, device=place), torch.ones(16, device=place)

    def layer(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        total = x + residual
        normed: torch.Tensor = torch.ops.npu.npu_rms_norm(total, weight, 1e-6)[0]
        return normed + total

    engine = FusingEngine(layer)
    print(engine.step(x, x)[0, :4].tolist(), engine.fused["fuse_add_rms_norm"])


if __name__ == "__main__":
    main()
