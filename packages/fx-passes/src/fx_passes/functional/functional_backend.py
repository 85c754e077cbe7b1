"""The way there: AOTAutograd makes a graph of Dynamo functional, rules run, writes come back."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from fx_passes.errors import PipelineError
from fx_passes.functional.reinplace import ReinplacePass
from fx_passes.pipeline import PipelineResult
from fx_passes.reports.report import Report
from fx_passes.torch_internals import aot_autograd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule

    from fx_passes.pipeline import Pipeline


class FunctionalBackend:
    """A backend of torch.compile that runs a pipeline on the functional form of each graph.

    AOTAutograd turns the Dynamo graph into an ATen graph without writes: an in-place operator
    becomes its functional form, a custom operator that writes becomes a call of
    `auto_functionalized_v2`, and each written input gets one `copy_` at the end. The passes run on
    that graph, followed by a `ReinplacePass`. AOTAutograd's own wrapper, in the result of the
    backend, handles inputs that share memory and results that are views of inputs.

    Args:
        pipeline: The passes.
        compile_graph: Returns the callable for a rewritten module; by default its `forward`. The
            callable gets the graph's inputs as positional arguments.

    Attributes:
        pipeline: The passes.
        results: The results of the pipeline and the `ReinplacePass` for each graph, in the order of
            compilation.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        compile_graph: Callable[[GraphModule], Callable[..., object]] = attrgetter("forward"),
    ) -> None:
        self.pipeline = pipeline
        self.results: list[PipelineResult] = []
        self._compile_graph = compile_graph

    def __call__(
        self, graph_module: GraphModule, example_inputs: Sequence[object]
    ) -> Callable[..., object]:
        """Compile one Dynamo graph.

        Args:
            graph_module: The graph; not changed.
            example_inputs: Its inputs, as passed by Dynamo.

        Returns:
            A callable with the graph's inputs as arguments.

        Raises:
            FxPassesError: See `Pipeline.run`.
            PipelineError: The graph needs gradients; compile under `torch.no_grad()` or
                `torch.inference_mode()`.
        """
        backend = aot_autograd(
            fw_compiler=_refuse_training,
            inference_compiler=self._compile,
            keep_inference_input_mutations=True,
        )
        compiled: Callable[..., object] = backend(graph_module, example_inputs)
        return compiled

    def _compile(
        self, graph_module: GraphModule, example_inputs: Sequence[object]
    ) -> Callable[..., object]:
        del example_inputs
        there = self.pipeline.run(graph_module)
        # Apart from the passes, which may run in several rounds: rules see functional graphs only.
        back = replace(self.pipeline, passes=(ReinplacePass(),)).run(graph_module)
        passes = (*there.report.passes, *back.report.passes)
        self.results.append(
            PipelineResult(modified=there.modified or back.modified, report=Report(passes=passes))
        )
        return self._compile_graph(graph_module)


def _refuse_training(
    graph_module: GraphModule, example_inputs: Sequence[object]
) -> Callable[..., object]:
    del graph_module, example_inputs
    raise PipelineError(
        "compiling a graph: an input needs gradients, and rules run forward only; call the model "
        "under torch.no_grad() or torch.inference_mode()"
    )
