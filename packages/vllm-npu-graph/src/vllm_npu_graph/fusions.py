"""The fusions of fx_passes, as one more pass of the engine's own pass manager."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.compilation.passes.vllm_inductor_pass import VllmInductorPass
from vllm.config import CompilationMode
from vllm.platforms import current_platform
from vllm_ascend.ascend_config import get_ascend_config

from fx_passes.inductor import PostGradPasses
from vllm_npu_graph.options import OptionsError

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from vllm_npu_graph.options import FusionOptions

_LOGGER = logging.getLogger("vllm.npu_graph")


class FusionPass(VllmInductorPass):  # type: ignore[misc]
    """Runs after the engine's own fusions, on every graph that it compiles for one model.

    Args:
        vllm_config: The engine's configuration.
        options: Which rules run.

    Attributes:
        passes: The rules, and what they did.
    """

    def __init__(self, vllm_config: Any, options: FusionOptions) -> None:
        super().__init__(vllm_config)
        self.passes = PostGradPasses()
        if options.exact:
            self.passes.pipeline = self.passes.pipeline.exact()
        self.passes.configure(options.settings)
        self._require = options.require

    def __call__(self, graph: GraphModule) -> None:
        """Rewrite one graph in place."""
        self.passes(graph)

    def uuid(self) -> str:
        """Return a key for the engine's caches."""
        return self.passes.uuid()

    def conclude(self) -> None:
        """Tell what was fused, when all graphs are compiled.

        Raises:
            ConditionError: A required rule matched in no graph; the message has its near misses.
        """
        report = self.passes.report
        report.require(*self._require)
        made = {rule: count for rule, count in report.match_counts().items() if count}
        told = ", ".join(f"{rule} {count}" for rule, count in made.items()) or "nothing matched"
        _LOGGER.info("vllm-npu-graph fuses in %d graphs: %s", len(self.passes.results), told)
        _LOGGER.debug("%s", report)


def add_fusions(vllm_config: Any, options: FusionOptions) -> FusionPass:
    """Put the pass where the engine takes passes of its user from: its compilation configuration.

    Raises:
        OptionsError: The configuration names another pass there.
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
    made = FusionPass(vllm_config, options)
    config.inductor_compile_config[key] = made
    return made
