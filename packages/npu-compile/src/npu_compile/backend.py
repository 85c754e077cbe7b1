"""The torch.compile backend: fuse, split, stitch, and wrap the pieces for capture."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fx_passes import PipelineError, default_npu_pipeline
from npu_compile.compilation_report import CompilationReport
from npu_compile.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_compile.sibling_versions import check_sibling_versions
from npu_graph_runtime import GraphedCallable, RunMode
from piecewise_split import plan_split, run_uncompiled, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from fx_passes import Pipeline
    from npu_compile.config import CompileConfig
    from npu_graph_runtime import GraphContext, GraphDevice, RuntimeObserver
    from piecewise_split import Piece, SplitPlan


class Backend:
    """Compiles the FX graphs that Dynamo hands over; usable as ``torch.compile(backend=...)``.

    Holds what was compiled: one report and, in mode ``piecewise``, the captured pieces of each
    graph. Graphs of a model that Dynamo compiles again (another dtype, say) are added.

    Args:
        config: what to do with each graph.
        device: the device seam on which pieces are captured; only needed by mode ``piecewise``.
        context: says at each call of a piece what the run mode and graph key are; owned by the
            caller, shared with the runner; only needed by mode ``piecewise``.
        observer: told of each capture and replay of a piece.

    Raises:
        ConfigError: mode ``piecewise`` without device or context, or an unknown fusion name.
        SiblingVersionError: a package that this one joins is outside of the stated range.
    """

    def __init__(
        self,
        config: CompileConfig,
        *,
        device: GraphDevice | None = None,
        context: GraphContext | None = None,
        observer: RuntimeObserver | None = None,
    ) -> None:
        check_sibling_versions()
        if config.mode is CompileMode.PIECEWISE and (device is None or context is None):
            raise ConfigError(
                "making a backend for mode 'piecewise': a device and a context are needed to "
                "capture pieces; pass both, or use npu_compile.compile_model(model, config), "
                "which makes them"
            )
        self.config = config
        self.reports: list[CompilationReport] = []
        self.captured_pieces: list[GraphedCallable] = []
        self._pipeline = pipeline_for(config)
        self._device = device
        self._context = context
        self._observer = observer
        self._lock = threading.Lock()

    def __call__(
        self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Compile one graph in place and return the callable that Dynamo runs.

        Args:
            graph_module: the Dynamo graph; the callable keeps it.
            example_inputs: unused; the graph's metadata has shapes and dtypes.

        Raises:
            SplittingOpAbsentError: a splitting op of the configuration occurs nowhere in the graph.
        """
        del example_inputs
        fusions = self._pipeline.run(graph_module).report if self._pipeline else None
        plan: SplitPlan | None = None
        pieces: list[GraphedCallable] = []
        compiled: Callable[..., Any] = graph_module.forward
        if self.config.mode is CompileMode.PIECEWISE:
            plan = plan_split(graph_module, splitting_ops=self.config.splitting_ops)
            compiled = stitch(split(graph_module, plan), lambda piece: self._wrap(piece, pieces))
        report = CompilationReport(fusions=fusions, plan=plan, num_captured_pieces=len(pieces))
        with self._lock:
            self.reports.append(report)
            self.captured_pieces += pieces
        return compiled

    def _wrap(self, piece: Piece, wrapped: list[GraphedCallable]) -> Callable[..., Any]:
        forward = run_uncompiled(piece)
        if piece.is_splitting or self._device is None or self._context is None:
            return forward
        graphed = GraphedCallable(
            forward,
            device=self._device,
            context=self._context,
            run_mode=RunMode.PIECEWISE,
            name=piece.name,
            address_check=self.config.address_check,
            warmup_runs=self.config.warmup_runs,
            observer=self._observer,
        )
        wrapped.append(graphed)
        return graphed


def pipeline_for(config: CompileConfig) -> Pipeline | None:
    """Return the default pipeline without what a configuration disables; ``None`` without fusions.

    Raises:
        ConfigError: a disabled fusion that the default pipeline does not have.
    """
    if not config.fuse:
        return None
    try:
        return default_npu_pipeline().without(*config.disabled_fusions)
    except PipelineError as error:
        raise ConfigError(f"reading the configuration: disabled_fusions: {error}") from error
