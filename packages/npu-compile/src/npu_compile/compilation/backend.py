"""The backend for engines that call ``torch.compile`` themselves: captures piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.compilation.graph_compiler import GraphCompiler
from npu_compile.configuration.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_graph_runtime import AddressCheck, GraphedCallable, RunMode
from piecewise_split import run_uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from fx_passes import Pipeline
    from npu_graph_runtime import GraphContext, GraphDevice
    from piecewise_split import Piece


class Backend(GraphCompiler):
    """Compiles the FX graphs that Dynamo produces; use it as ``torch.compile(backend=...)``.

    Keeps one report per graph and, in mode ``piecewise``, its captured pieces. If Dynamo compiles a
    model again (for another dtype, say), the new graphs are added.

    Args:
        config: what to do with each graph; mode ``eager`` or ``piecewise``. The other modes capture
            around the compiled model, which a backend cannot do.
        device: the device on which pieces are captured; only needed in mode ``piecewise``.
        context: provides the run mode (``RunMode.PIECEWISE``) and graph key for each call of a
            piece.
            Owned by the caller and shared with the runner; only needed in mode ``piecewise``.
        pipeline: rewrites each graph, instead of the pipeline named by ``config.fusions``.

    Raises:
        ConfigError: The mode is another one, there is a compile cache, mode ``piecewise`` has no
            device or context, or a fusion name is unknown.
        SiblingVersionError: The version of a package that npu-compile uses is outside its range.
    """

    def __init__(
        self,
        config: CompileConfig,
        *,
        device: GraphDevice | None = None,
        context: GraphContext | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        if config.mode not in {CompileMode.EAGER, CompileMode.PIECEWISE}:
            raise ConfigError(
                f"making a backend for mode {config.mode.value!r}: it captures around the compiled "
                "model, which a backend cannot do; use npu_compile.compile_model(model, config)"
            )
        if config.cache_folder is not None:
            raise ConfigError(
                "making a backend: cache_folder is given, but what torch.compile hands over has "
                "been through Dynamo, which is what a cache saves; use "
                "npu_compile.compile_model(model, config), or leave it out"
            )
        self.config = config
        self.captured_pieces: list[GraphedCallable] = []
        super().__init__(config, self._capturing(device, context), pipeline=pipeline)

    def _capturing(
        self, device: GraphDevice | None, context: GraphContext | None
    ) -> Callable[[Piece], Callable[..., Any]] | None:
        """Return a function that wraps each piece between splitting ops in a graphed callable."""
        if self.config.mode is CompileMode.EAGER:
            return None
        if device is None or context is None:
            raise ConfigError(
                "making a backend for mode 'piecewise': a device and a context are needed to "
                "capture pieces; pass both, or use npu_compile.compile_model(model, config), "
                "which makes them"
            )

        new_each_step: set[str] = set()

        def prepare(piece: Piece) -> Callable[..., Any]:
            forward = run_uncompiled(piece)
            if piece.index == 0:
                new_each_step.clear()
            if piece.is_splitting:
                new_each_step.update(piece.output_names)
                return forward
            check = self.config.address_check
            if check is AddressCheck.FIRST_REPLAY and new_each_step.intersection(piece.input_names):
                # What an operator returns between captured pieces may lie elsewhere at each step.
                check = AddressCheck.ALWAYS
            graphed = GraphedCallable(
                forward,
                device=device,
                context=context,
                run_mode=RunMode.PIECEWISE,
                name=piece.label,
                address_check=check,
                warmup_runs=self.config.warmup_runs,
                guard=self.config.capture_guard,
            )
            self.captured_pieces.append(graphed)
            return graphed

        return prepare
