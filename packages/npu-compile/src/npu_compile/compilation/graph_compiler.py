"""Compiles one Dynamo graph: fuse, split, stitch."""

from __future__ import annotations

import dataclasses
import operator
import threading
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, GraphModule

from fx_passes.generic_passes import PreparedValues, prepared_values_of
from npu_compile.compilation.chosen_pipeline import chosen_pipeline, stable_hash
from npu_compile.sibling_versions import check_sibling_versions
from piecewise_split import plan_split, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch.fx import Node

    from fx_passes import PassObserver, Pipeline, Report
    from npu_compile.compilation.inner_compiler import FxCompiler
    from npu_compile.configuration.config import CompileConfig
    from piecewise_split import Piece, SplitPlan


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CompilationReport:
    """The report on one graph that the backend compiled.

    Attributes:
        fusions: matches and near misses, with reasons; ``None`` if no fusion rule ran.
        plan: the split plan, or ``None`` if the graph was not split.
        num_captured_pieces: number of pieces wrapped for capture.
        cache: where the compile cache found or stored the graph, or why it could not; ``None``
            without a cache folder.
    """

    fusions: Report | None
    plan: SplitPlan | None
    num_captured_pieces: int
    cache: str | None = None

    def __str__(self) -> str:
        parts = (self.fusions, self.plan, self.cache)
        return "\n\n".join(str(part) for part in parts if part is not None)


class GraphCompiler:
    """Fuses the graphs that Dynamo produces and, if pieces are requested, splits them.

    It is a backend of ``torch.compile``, which several threads may call for several graphs.

    Args:
        pipeline: rewrites graphs, instead of the pipeline named by the configuration.
        prepare_piece: returns the callable that runs in place of a piece; ``None`` does not split.
        inner: compiles whole graphs further after the fusions; called like a backend.
        observers: observe graphs between the fusion passes.

    Attributes:
        prepared: values that graphs compute from weights once for all steps. Before you replay a
            captured graph, ask them whether a weight has changed.
        pieces: the pieces of the latest graph, each with the callable that replaces it.
        pipeline_hash: hash of the pipeline, for the key of a compile cache; empty without one.

    Raises:
        ConfigError: The configuration names an unknown fusion, or contradicts the pipeline.
        SiblingVersionError: The version of a package that npu-compile uses is outside its range.
    """

    def __init__(
        self,
        config: CompileConfig,
        prepare_piece: Callable[[Piece], Callable[..., Any]] | None = None,
        observers: Sequence[PassObserver] = (),
        inner: FxCompiler | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        check_sibling_versions()
        self.reports: list[CompilationReport] = []
        self.prepared: list[PreparedValues] = []
        self.pieces: tuple[tuple[Piece, Callable[..., Any]], ...] = ()
        self._config = config
        chosen = chosen_pipeline(config, pipeline)
        self._pipeline = chosen.observed_by(*observers) if chosen else None
        self._is_stored = config.cache_folder is not None
        self.pipeline_hash = stable_hash(chosen) if chosen and config.cache_folder else ""
        self._prepare_piece = prepare_piece
        self._inner = inner
        self._lock = threading.Lock()

    def __call__(
        self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Compile one graph in place and return the callable that Dynamo runs, which keeps it.

        Only an inner compiler reads the inputs: the graph's metadata has shapes and dtypes.

        Raises:
            RuleError: A rule that the configuration requires matched nothing.
            SplittingOpError: A splitting op of the configuration does not occur in the graph.
        """
        fusions = self._fuse(graph_module)
        prepared = prepared_values_of(graph_module) if fusions else ()
        plan = None
        num_captured_pieces = 0
        compiled: Callable[..., Any] = graph_module.forward
        if self._prepare_piece is not None:
            whole, given = give_prepared_values(graph_module)
            plan = plan_split(
                whole,
                splitting_ops=self._config.splitting_ops,
                allow_absent=self._config.allow_absent,
                side_inputs=dict(self._config.side_inputs),
            )
            pieces = split(plan)
            num_captured_pieces = sum(not piece.is_splitting for piece in pieces.pieces)
            replaced = [self._prepare_piece(piece) for piece in pieces.pieces]
            compiled = given(stitch(pieces, lambda piece: replaced[piece.index]))
            self.pieces = tuple(zip(pieces.pieces, replaced, strict=True))
        elif self._inner is not None:
            compiled = self._inner(graph_module, example_inputs)
        report = CompilationReport(
            fusions=fusions,
            plan=plan.without_graph() if plan else None,
            num_captured_pieces=num_captured_pieces,
        )
        with self._lock:
            self.reports.append(report)
            self.prepared += prepared
        return compiled

    def _fuse(self, graph_module: torch.fx.GraphModule) -> Report | None:
        """Run the fusions; return `None` if the configuration has none."""
        if self._pipeline is None:
            return None
        if self._is_stored:
            # What is kept on disk holds no values, so what is made of weights costs its launches.
            for node in graph_module.graph.find_nodes(op="placeholder"):
                node.meta.pop("tensor_dict", None)
        required = self._config.required_fusions
        return self._pipeline.run(graph_module, require=required).report


def give_prepared_values(
    graph_module: GraphModule,
) -> tuple[GraphModule, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Turn the values that a graph prepares from its weights into additional inputs.

    No piece of the graph then computes them, and a captured piece finds them at a fixed address.

    Args:
        graph_module: A Dynamo graph after the fusions. Dynamo still reads its inputs, so it
            is not changed.

    Returns:
        A module whose graph has the additional inputs (the given module if there are none), and a
        function that turns a callable with all inputs into one with the graph's own inputs.
    """
    if not prepared_values_of(graph_module):
        return graph_module, lambda call: call
    graph = Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    inputs = list(graph.find_nodes(op="placeholder"))
    places = {node: place for place, node in enumerate(inputs)}
    prepared: list[tuple[PreparedValues, tuple[int, ...]]] = []
    for node in graph.find_nodes(op="call_module"):
        module = graph_module.get_submodule(str(node.target))
        if isinstance(module, PreparedValues) and places.keys() >= set(node.args):
            prepared.append((module, tuple(places[each] for each in node.args)))
            _replace_by_inputs(node)

    def giving(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            values = [
                value
                for module, weights in prepared
                for value in module(*[args[each] for each in weights])
            ]
            return call(*args, *values)

        return run

    return GraphModule(graph_module, graph), giving


def _replace_by_inputs(call: Node) -> None:
    graph = call.graph
    last = list(graph.find_nodes(op="placeholder"))[-1]
    taken = {user.args[1]: user for user in call.users if user.target is operator.getitem}
    for position, value in enumerate(call.meta["val"]):
        with graph.inserting_after(last):
            last = graph.placeholder(f"{call.name}_{position}")
        last.meta["val"] = last.meta["example_value"] = value
        if position in taken:
            taken[position].replace_all_uses_with(last)
            graph.erase_node(taken[position])
    graph.erase_node(call)
