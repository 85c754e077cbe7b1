"""An engine adopts fx-passes alone: fuses what Dynamo traced, and runs it as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_passes import default_npu_pipeline

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
