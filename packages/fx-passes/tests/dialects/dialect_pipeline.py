"""The default pipeline with the dialect of vLLM-Ascend before its fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fx_passes
from fx_passes.dialects import vllm_ascend_dialect

if TYPE_CHECKING:
    import torch


def forms(groups: dict[str, str] | None = None) -> fx_passes.RulePass:
    return fx_passes.RulePass(name="forms", rules=vllm_ascend_dialect(groups or {}))


def pipeline() -> fx_passes.Pipeline:
    """Return the default pipeline with the forms before its fusions."""
    normalize, *fusions = fx_passes.default_npu_pipeline().passes
    return fx_passes.Pipeline(passes=(normalize, forms(), *fusions))


def targets(module: torch.fx.GraphModule) -> list[str]:
    """Return the names of the operators that a graph calls."""
    called = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [target for target in called if "getitem" not in target]
