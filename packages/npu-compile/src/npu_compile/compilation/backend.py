"""The backend for ``torch.compile`` in an engine's own hands: pieces are captured one by one."""

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
    from npu_graph_runtime.observer import RuntimeObserver
    from piecewise_split import Piece


class Backend(GraphCompiler):
    """Compiles the FX graphs that Dynamo hands over; usable as ``torch.compile(backend=...)``.

    Holds what was compiled: one report and, in mode ``piecewise``, the captured pieces of each
    graph. Graphs of a model that Dynamo compiles again (another dtype, say) are added.

    Args:
        config: what to do with each graph; mode ``eager`` or ``piecewise``. The others capture
            around the compiled model, which a backend cannot do.
        device: the device seam on which pieces are captured; only needed by mode ``piecewise``.
        context: says at each call of a piece what the run mode (``RunMode.PIECEWISE``) and graph
            key are; owned by the caller, shared with the runner; only needed by mode ``piecewise``.
        observer: told of each capture and replay of a piece.
        pipeline: rewrites each graph, in place of the pipeline that ``config.fusions`` names.

    Raises:
        ConfigError: another mode, a compile cache, mode ``piecewise`` without device or context, or
            an unknown fusion name.
        SiblingVersionError: a package that this one joins is outside of the stated range.
    """

    def __init__(
        self,
        config: CompileConfig,
        *,
        device: GraphDevice | None = None,
        context: GraphContext | None = None,
        observer: RuntimeObserver | None = None,
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
        self._observer = observer
        super().__init__(config, self._capturing(device, context), pipeline=pipeline)

    def _capturing(
        self, device: GraphDevice | None, context: GraphContext | None
    ) -> Callable[[Piece], Callable[..., Any]] | None:
        """Return what makes a graphed callable of each piece between splitting ops."""
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
                observer=self._observer,
            )
            self.captured_pieces.append(graphed)
            return graphed

        return prepare
