"""vLLM-Ascend's compiler, which hands npugraph_ex graphs that our fusions went over."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm_ascend.ascend_config import get_ascend_config
from vllm_ascend.compilation.compiler_interface import AscendCompiler

from vllm_npu_graph.fusions import FusionPass

if TYPE_CHECKING:
    from torch.fx import GraphModule


class FusingCompiler(AscendCompiler):  # type: ignore[misc]
    """The engine's compiler; without npugraph_ex the engine's pass manager runs our pass."""

    def compile(self, graph: GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Compile what the fusions made of a graph."""
        return super().compile(self._fused(graph), *args, **kwargs)

    def load(self, handle: Any, graph: GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Compile again: what was kept does not say what was fused."""
        return super().load((handle[0], None), self._fused(graph), *args, **kwargs)

    def _fused(self, graph: GraphModule) -> GraphModule:
        config = self.vllm_config.compilation_config.inductor_compile_config
        fusions = config.get(current_platform.pass_key)
        by_ex = get_ascend_config().ascend_compilation_config.enable_npugraph_ex
        if by_ex and isinstance(fusions, FusionPass):
            graph = copy.deepcopy(graph)
            fusions(graph)
        return graph
