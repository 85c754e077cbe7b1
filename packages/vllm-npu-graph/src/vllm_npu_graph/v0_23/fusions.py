"""The fusions of fx_passes, as a pass of the engine's pass manager or before npugraph_ex."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from vllm.compilation.passes.vllm_inductor_pass import VllmInductorPass
from vllm.config import CompilationMode
from vllm.platforms import current_platform
from vllm_ascend.ascend_config import get_ascend_config
from vllm_ascend.compilation.compiler_interface import AscendCompiler

from fx_passes.inductor import PostGradPasses
from vllm_npu_graph.options import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import GraphModule

_LOGGER = logging.getLogger("vllm.npu_graph")


class FusionPass(VllmInductorPass):  # type: ignore[misc]
    """Runs after the engine's own fusions, on every graph that it compiles for one model.

    Attributes:
        passes: The rules and their results.
    """

    def __init__(self, vllm_config: Any, settings: Mapping[str, object]) -> None:
        super().__init__(vllm_config)
        self.passes = PostGradPasses()
        self.passes.configure(settings)

    def __call__(self, graph: GraphModule) -> None:
        """Rewrite one graph in place."""
        self.passes(graph)

    def uuid(self) -> str:
        """Return a key for the engine's caches."""
        return self.passes.uuid()

    def conclude(self) -> None:
        """Log what was fused, after all graphs are compiled.

        Raises:
            RuleError: A required rule matched in no graph; the message has its near misses.
        """
        report, graphs = self.passes.report, len(self.passes.results)
        report.require(*self.passes.selection.require)
        _LOGGER.info("vllm-npu-graph fuses in %d graphs: %s", graphs, report.summary())
        _LOGGER.debug("%s", report)


def add_fusions(vllm_config: Any, settings: Mapping[str, object]) -> FusionPass:
    """Put the pass where the engine takes passes of its user from: its compilation configuration.

    Raises:
        OptionsError: The configuration names another pass there.
        PipelineError: A setting, pass or rule is not there.
    """
    config, key = vllm_config.compilation_config, current_platform.pass_key
    if key in config.inductor_compile_config:
        raise OptionsError(
            f"adding fusions: compilation_config.inductor_passes holds a pass for {key!r} already; "
            "the engine takes one: leave it out, or fusions"
        )
    by_ex = get_ascend_config().ascend_compilation_config.enable_npugraph_ex
    is_ours = "vllm_npu_graph" in current_platform.get_compile_backend()
    if config.mode != CompilationMode.VLLM_COMPILE or (by_ex and not is_ours):
        _LOGGER.warning(
            "vllm-npu-graph fuses nothing: in mode %s the engine compiles %s; see the README",
            config.cudagraph_mode.name,
            "by npugraph_ex, and vLLM was not told to take our platform" if by_ex else "nothing",
        )
    made = config.inductor_compile_config[key] = FusionPass(vllm_config, settings)
    return made


class FusingCompiler(AscendCompiler):  # type: ignore[misc]
    """The engine's compiler, which fuses graphs before npugraph_ex gets them."""

    def compile(self, graph: GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Compile a graph after fusing it."""
        return super().compile(self._fused(graph), *args, **kwargs)

    def load(self, handle: Any, graph: GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Compile a fused graph again, because the cached one does not record its fusions."""
        fused = self._fused(graph)
        return super().load(handle if fused is graph else (handle[0], None), fused, *args, **kwargs)

    def _fused(self, graph: GraphModule) -> GraphModule:
        config = self.vllm_config.compilation_config.inductor_compile_config
        fusions = config.get(current_platform.pass_key)
        by_ex = get_ascend_config().ascend_compilation_config.enable_npugraph_ex
        if by_ex and isinstance(fusions, FusionPass):
            graph = copy.deepcopy(graph)
            fusions(graph)
        return graph
