"""A pipeline as the pass manager that vLLM and Inductor expect.

The one place that uses Inductor's private protocol of custom passes. The package does not import
it by itself; name it as `fx_passes.inductor.PostGradPasses`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

from fx_passes.dialects.vllm_ascend import vllm_ascend_dialect
from fx_passes.errors import PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.generic_passes.folded_constants import FoldConstantsPass
from fx_passes.graph_pass import GraphPass, RulePass
from fx_passes.inductor.replacement_rule import free_name
from fx_passes.npu_pipeline import default_npu_pipeline
from fx_passes.pass_selection import PassSelection, TokenRange
from fx_passes.reports.report import PassReport, Report
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from fx_passes.pipeline import Pipeline, PipelineResult


_KEY = "fx_passes"

_VLLM_MODULE = "vllm.compilation.passes.inductor_pass"


def _compile_range() -> Any:
    """Return the range that vLLM currently compiles for; None outside its compilation.

    Reads it as vLLM's own pass managers do, if the process has imported vLLM.
    """
    module = sys.modules.get(_VLLM_MODULE)
    if module is None:
        return None
    try:
        context = module.get_pass_context()
    except AssertionError:
        # vLLM asserts that there is a compilation.
        return None
    return getattr(context, "compile_range", None)


def _range_of_vllm() -> TokenRange | None:
    """Return the sizes that vLLM compiles for at the moment, both ends included, or None."""
    found = _compile_range()
    return None if found is None else TokenRange(start=int(found.start), end=int(found.end))


def _vllm_ascend_pipeline() -> Pipeline:
    """Return all fusions for NPUs, with the rules for vLLM-Ascend's own operators first."""
    default = default_npu_pipeline()
    forms = RulePass(name="vllm_ascend_dialect", rules=vllm_ascend_dialect(), after=("normalize",))
    normalize, *others = default.passes
    return replace(default, passes=(normalize, forms, *others))


@dataclass(frozen=True, kw_only=True)
class _ForeignPass(GraphPass):
    """A pass of vLLM or Inductor, hashed by its own `uuid()`.

    Attributes:
        call: The pass.
        takes_module: Whether it is called with the module, as by vLLM-Ascend, or with its graph.
    """

    name: str
    call: CustomGraphPass
    takes_module: bool = False

    def run(self, graph_module: GraphModule) -> PassReport:
        """Call the pass, unless it says that it is not for the sizes at hand."""
        applies, sizes = getattr(self.call, "is_applicable_for_range", None), _compile_range()
        if applies is not None and sizes is not None and not applies(sizes):
            return PassReport(name=self.name, modified=False, detail="not for this range of sizes")
        before = str(graph_module.graph)
        call: Any = self.call
        call(graph_module if self.takes_module else graph_module.graph)
        return PassReport(name=self.name, modified=str(graph_module.graph) != before)

    def fingerprint(self) -> str:
        """Return a hash of the pass's own key."""
        return fingerprint_of_functions((), self.name, str(self.call.uuid()))


class PostGradPasses(CustomGraphPass):
    """A pass manager for vLLM's `Platform.get_pass_manager_cls` and `post_grad_custom_*_pass`.

    The latter are options of Inductor, of npugraph_ex and of torchair. The last two cache
    compilations (`cache_compile`) under a key that does not include a custom pass, so give each
    pipeline a cache folder of its own, for example named after `uuid()`.

    Args:
        pipeline: The pipeline; by default all NPU fusions, preceded by the rules that rewrite
            vLLM-Ascend's operators for them.
        selection: Selects parts of it.
        tokens: Returns the range that the current graph is compiled for, or None; called at every
            call. By default the compile range of vLLM's pass context.

    Attributes:
        pipeline: The passes, including added ones.
        selection: The selection from `configure`.
        results: The result of each call, in order: an engine calls once per compiled graph.
    """

    def __init__(
        self,
        pipeline: Pipeline | None = None,
        *,
        selection: PassSelection | None = None,
        tokens: Callable[[], TokenRange | None] = _range_of_vllm,
    ) -> None:
        self.pipeline = _vllm_ascend_pipeline() if pipeline is None else pipeline
        self.selection = PassSelection() if selection is None else selection
        self.results: list[PipelineResult] = []
        self._tokens = tokens

    @property
    def report(self) -> Report:
        """Combined report of all graphs so far, in the order of the calls."""
        return Report(passes=tuple(each for made in self.results for each in made.report.passes))

    def configure(self, config: object) -> None:
        """Take the switches from a configuration.

        Args:
            config: vLLM's configuration (its `additional_config["fx_passes"]` is read, if it is
                there), or that mapping itself: see `PassSelection.read`.

        Raises:
            PipelineError: A setting, pass or rule does not exist, or vLLM's configuration has
                `require`, which nothing would ask for.
        """
        found: object = config
        if not isinstance(config, Mapping):
            additional = getattr(config, "additional_config", None)
            found = additional.get(_KEY, {}) if isinstance(additional, Mapping) else {}
        selection = PassSelection.read(found)
        if selection.require and found is not config:
            raise PipelineError(
                "configuring passes: 'require' is for those who ask the report for it when all "
                "graphs are compiled, which vLLM does not: leave it out, or use vllm-npu-graph"
            )
        selection.select(self.pipeline)
        self.selection = selection

    def add(self, new: GraphPass | Rule | tuple[Rule, ...] | CustomGraphPass) -> None:
        """Append a pass, or one or several rules, each of which becomes a pass with its own name.

        You can also add passes of vLLM and Inductor. They are called after all passes added before,
        once, if they apply to the range of sizes, with the arguments of this object's call.

        Raises:
            PipelineError: The object is neither, or its name is already used.
        """
        if isinstance(new, tuple):
            for each in new:
                self.add(each)
            return
        if isinstance(new, Rule):
            new = RulePass(name=f"added_{new.name}", rules=(new,))
        elif isinstance(new, CustomGraphPass):
            # Engines add several passes of one class.
            name = free_name(f"added_{type(new).__name__}", self.pipeline.names())
            new = _ForeignPass(name=name, call=new)
        if not isinstance(new, GraphPass):
            raise PipelineError(
                f"adding {new!r} to the passes: expected a GraphPass, a Rule or a pass of "
                "Inductor; wrap a function that takes a GraphModule in a FunctionPass"
            )
        self.pipeline = replace(self.pipeline, passes=(*self.pipeline.passes, new))

    def __call__(  # type: ignore[override]  # the protocol returns nothing
        self, graph: Graph | GraphModule, example_inputs: object = None, config: object = None
    ) -> Graph | GraphModule:
        """Run the passes in place.

        Args:
            graph: The graph, or its module. A module is recompiled if anything changed.
            example_inputs: What npugraph_ex and torchair hand over as well; not read.
            config: The same.

        Returns:
            What was given, as vLLM-Ascend's compiler expects it.

        Raises:
            FxPassesError: See `Pipeline.run`; the graph is as it was.
        """
        del example_inputs, config
        if isinstance(graph, GraphModule):
            module = graph
        else:
            owner: object = graph.owning_module
            # A module made for the time of the call reads the graph's attributes from its owner.
            root = owner if isinstance(owner, torch.nn.Module) else torch.nn.Module()
            module = root if isinstance(root, GraphModule) else GraphModule(root, graph)
        passes = tuple(_in_a_compiler(each, module is graph) for each in self.pipeline.passes)
        pipeline = self.selection.select(replace(self.pipeline, passes=passes), self._tokens())
        self.results.append(pipeline.run(module))
        return graph

    def __deepcopy__(self, memo: object) -> PostGradPasses:
        """Return one that shares the passes, which are values; vLLM copies its configuration."""
        del memo
        copied = PostGradPasses(self.pipeline, selection=self.selection, tokens=self._tokens)
        copied.results = list(self.results)
        return copied

    def uuid(self) -> str:
        """Return a key for compile caches: the passes, their size ranges, and the versions.

        Raises:
            FingerprintError: A pass has content that cannot be hashed in a stable way.
        """
        tokens = self._tokens()
        return fingerprint_of_functions((), self.pipeline.hash(), self.selection, tokens)


def _in_a_compiler(each: GraphPass, takes_module: bool) -> GraphPass:
    """Return a pass as it is for a graph that is compiled further, and not called as it is."""
    if isinstance(each, _ForeignPass):
        return replace(each, takes_module=takes_module)
    return replace(each, watches=False) if isinstance(each, FoldConstantsPass) else each
