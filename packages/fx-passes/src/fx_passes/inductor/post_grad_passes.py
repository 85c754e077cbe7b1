"""A pipeline as the pass manager that vLLM and Inductor expect.

The one place that uses Inductor's private protocol of custom passes. The package does not import
it by itself; name it as `fx_passes.inductor.PostGradPasses`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

from fx_passes.engine_forms.vllm_ascend import vllm_ascend_forms
from fx_passes.errors import PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.fusions.npu_pipeline import default_npu_pipeline
from fx_passes.graph_pass import GraphPass, RulePass
from fx_passes.pass_selection import PassSelection, TokenRange
from fx_passes.reports.report import PassReport
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from fx_passes.graph_pass import Condition
    from fx_passes.pipeline import Pipeline, PipelineResult

__all__ = ["PostGradPasses"]

_KEY = "fx_passes"
_SETTINGS = ("enabled", "disabled", "ranges")


_VLLM_MODULE = "vllm.compilation.passes.inductor_pass"


def _range_of_vllm() -> TokenRange | None:
    """Return the range that vLLM compiles for at the moment; None outside of its compilation.

    Reads what vLLM's own passes read, `get_pass_context().compile_range`, where the process has
    imported vLLM.
    """
    context = getattr(sys.modules.get(_VLLM_MODULE), "_pass_context", None)
    found = getattr(context, "compile_range", None)
    if found is None:
        return None
    return TokenRange(start=int(found.start), end=int(found.end))


def _vllm_ascend_pipeline() -> Pipeline:
    """Return all fusions for NPUs, with the rules for vLLM-Ascend's own operators first."""
    default = default_npu_pipeline()
    forms = RulePass(name="vllm_ascend_forms", rules=vllm_ascend_forms(), after=("normalize",))
    normalize, *others = default.passes
    return replace(default, passes=(normalize, forms, *others))


@dataclass(frozen=True, kw_only=True)
class _ForeignPass:
    """A pass of vLLM or Inductor: called with the graph, hashed by its own `uuid()`."""

    name: str
    call: CustomGraphPass
    after: tuple[str, ...] = ()
    repeats: bool = False
    preconditions: tuple[Condition, ...] = ()
    postconditions: tuple[Condition, ...] = ()

    def run(self, graph_module: GraphModule) -> PassReport:
        """Call the pass, unless it says that it is not for the sizes at hand."""
        applies = getattr(self.call, "is_applicable_for_range", None)
        context = getattr(sys.modules.get(_VLLM_MODULE), "_pass_context", None)
        if applies is not None and context is not None and not applies(context.compile_range):
            return PassReport(name=self.name, modified=False, detail="not for this range of sizes")
        before = str(graph_module.graph)
        self.call(graph_module.graph)
        return PassReport(name=self.name, modified=str(graph_module.graph) != before)

    def fingerprint(self) -> str:
        """Return a hash of the pass's own key."""
        return fingerprint_of_functions((), self.name, str(self.call.uuid()))


class PostGradPasses(CustomGraphPass):
    """What `Platform.get_pass_manager_cls` of vLLM and `post_grad_custom_*_pass` of Inductor take.

    Args:
        pipeline: What runs; if left out all fusions for NPUs, and before them the rules that bring
            vLLM-Ascend's operators into the form that these match.
        selection: Which parts of it run.
        tokens: Returns the range that the graph at hand is compiled for, or None; asked at every
            call. Left out, it is the compile range of vLLM's pass context.

    Attributes:
        pipeline: The passes, those that were added included.
        selection: What `configure` was told.
        last: What the last call did; None before the first. Belongs to this object alone.
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
        self.last: PipelineResult | None = None
        self._tokens = tokens

    def configure(self, config: object) -> None:
        """Take the switches from a configuration.

        Args:
            config: vLLM's configuration (its `additional_config["fx_passes"]` is read, if it is
                there), or that mapping itself: `enabled`, `disabled` (names) and `ranges` (name to
                `(start, end)` in tokens, `end` inclusive or None).

        Raises:
            PipelineError: A setting, pass or rule does not exist.
        """
        found: object = config
        if not isinstance(config, Mapping):
            additional = getattr(config, "additional_config", None)
            found = additional.get(_KEY, {}) if isinstance(additional, Mapping) else {}
        if not isinstance(found, Mapping):
            raise PipelineError(
                f"configuring passes: expected a mapping of {_SETTINGS}, found {found!r}"
            )
        for name in found:
            if name not in _SETTINGS:
                near = get_close_matches(str(name), _SETTINGS) or _SETTINGS
                raise PipelineError(f"configuring passes: no setting {name!r}; near: {near}")
        ranges: Mapping[str, tuple[int, int | None]] = found.get("ranges", {})
        selection = PassSelection(
            enabled=bool(found.get("enabled", True)),
            disabled=tuple(found.get("disabled", ())),
            ranges=tuple(
                (name, TokenRange(start=start, end=end)) for name, (start, end) in ranges.items()
            ),
        )
        selection.select(self.pipeline)
        self.selection = selection

    def add(self, new: GraphPass | Rule | tuple[Rule, ...] | CustomGraphPass) -> None:
        """Append a pass, or a rule or several, each of which becomes a pass of its own name.

        Passes of vLLM and Inductor are taken as they are: they are called with the graph after all
        that was there before, once, where they apply to the range of sizes.

        Raises:
            PipelineError: It is neither, or its name is taken.
        """
        if isinstance(new, tuple):
            for each in new:
                self.add(each)
            return
        if isinstance(new, Rule):
            new = RulePass(name=f"added_{new.name}", rules=(new,))
        elif isinstance(new, CustomGraphPass):
            new = _ForeignPass(name=f"added_{type(new).__name__}", call=new)
        if not isinstance(new, GraphPass):
            raise PipelineError(
                f"adding {new!r} to the passes: expected a GraphPass, a Rule or a pass of "
                "Inductor; wrap a function that takes a GraphModule in a FunctionPass"
            )
        self.pipeline = replace(self.pipeline, passes=(*self.pipeline.passes, new))

    def __call__(  # type: ignore[override]  # the protocol returns nothing
        self, graph: Graph | GraphModule
    ) -> Graph | GraphModule:
        """Run the passes in place.

        Args:
            graph: The graph, or its module. A module is recompiled if anything changed.

        Returns:
            What was given, as vLLM-Ascend's compiler expects it.

        Raises:
            FxPassesError: See `Pipeline.run`; the graph is as it was.
        """
        if isinstance(graph, GraphModule):
            module = graph
        else:
            owner = graph.owning_module
            # A module made for the time of the call reads the graph's attributes from its owner.
            module = owner if isinstance(owner, GraphModule) else GraphModule(_root(owner), graph)
        self.last = self.selection.select(self.pipeline, self._tokens()).run(module)
        return graph

    def uuid(self) -> str:
        """Return a key for compile caches: what runs, for which sizes, and the versions.

        Raises:
            FingerprintError: A pass has content that no stable hash can be made of.
        """
        tokens = self._tokens()
        return fingerprint_of_functions((), self.pipeline.hash(), self.selection, tokens)


def _root(owner: object) -> torch.nn.Module:
    return owner if isinstance(owner, torch.nn.Module) else torch.nn.Module()
