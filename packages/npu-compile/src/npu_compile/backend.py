"""The torch.compile backend: fuse, split, stitch, and wrap the pieces for capture."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fx_passes import Pipeline, default_npu_pipeline
from npu_compile.compilation_report import CompilationReport
from npu_compile.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_graph_runtime import GraphedCallable, RunMode
from piecewise_split import plan_split, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from npu_graph_runtime import GraphContext, GraphDevice, RuntimeObserver
    from piecewise_split import Piece


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
    """

    def __init__(
        self,
        config: CompileConfig,
        *,
        device: GraphDevice | None = None,
        context: GraphContext | None = None,
        observer: RuntimeObserver | None = None,
    ) -> None:
        if config.mode is CompileMode.PIECEWISE and (device is None or context is None):
            raise ConfigError(
                "making a backend for mode 'piecewise': a device and a context are needed to "
                "capture pieces; pass both, or use npu_compile.compile(model, config), "
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
            SplitError: a splitting op of the configuration occurs nowhere in the graph.
        """
        del example_inputs
        result = self._pipeline.run(graph_module)
        if self.config.mode is not CompileMode.PIECEWISE:
            report = CompilationReport(fusions=result.report, plan=None, num_captured_pieces=0)
            with self._lock:
                self.reports.append(report)
            return graph_module.forward
        plan = plan_split(graph_module, splitting_ops=self.config.splitting_ops)
        pieces: list[GraphedCallable] = []
        stitched = stitch(split(graph_module, plan), lambda piece: self._wrap(piece, pieces))
        report = CompilationReport(
            fusions=result.report, plan=plan, num_captured_pieces=len(pieces)
        )
        with self._lock:
            self.reports.append(report)
            self.captured_pieces += pieces
        return stitched

    def _wrap(self, piece: Piece, wrapped: list[GraphedCallable]) -> Callable[..., Any]:
        forward = piece.graph_module.forward
        if piece.is_splitting:
            return forward
        assert self._device is not None  # checked on construction
        assert self._context is not None
        graphed = GraphedCallable(
            forward,
            device=self._device,
            context=self._context,
            run_mode=RunMode.PIECEWISE,
            name=piece.name,
            observer=self._observer,
        )
        wrapped.append(graphed)
        return graphed


def pipeline_for(config: CompileConfig) -> Pipeline:
    """Return the default pipeline restricted to the fusions that a configuration names.

    Raises:
        ConfigError: a fusion name that no pass of the default pipeline has.
    """
    pipeline = default_npu_pipeline()
    if config.fusions is None:
        return pipeline
    raise NotImplementedError
