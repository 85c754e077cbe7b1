"""A pipeline as the pass manager that vLLM and Inductor expect.

The one place that uses Inductor's private protocol of custom passes. The package does not import
it by itself; name it as `fx_passes.inductor.PostGradPasses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

from fx_passes.errors import PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.fusions.npu_pipeline import default_npu_pipeline
from fx_passes.graph_pass import GraphPass, RulePass
from fx_passes.pass_selection import PassSelection, TokenRange
from fx_passes.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from fx_passes.pipeline import Pipeline, PipelineResult

__all__ = ["PostGradPasses"]

_KEY = "fx_passes"
_SETTINGS = ("enabled", "disabled", "ranges")


def _unknown_size() -> None:
    return None


class PostGradPasses(CustomGraphPass):
    """What `Platform.get_pass_manager_cls` of vLLM and `post_grad_custom_*_pass` of Inductor take.

    Args:
        pipeline: What runs; all fusions for NPUs if left out.
        selection: Which parts of it run.
        tokens: Returns the range that the graph at hand is compiled for, or None; asked at every
            call. In vLLM that is the compile range of its pass context.

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
        tokens: Callable[[], TokenRange | None] = _unknown_size,
    ) -> None:
        self.pipeline = default_npu_pipeline() if pipeline is None else pipeline
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

    def add(self, new: GraphPass | Rule) -> None:
        """Append a pass, or a rule, which becomes a pass of its own name.

        Raises:
            PipelineError: It is neither, or its name is taken.
        """
        if isinstance(new, Rule):
            new = RulePass(name=f"added_{new.name}", rules=(new,))
        if not isinstance(new, GraphPass):
            raise PipelineError(
                f"adding {new!r} to the passes: expected a GraphPass or a Rule; wrap a function "
                "that takes a GraphModule in a FunctionPass"
            )
        self.pipeline = replace(self.pipeline, passes=(*self.pipeline.passes, new))

    def __call__(self, graph: Graph | GraphModule) -> None:
        """Run the passes in place.

        Args:
            graph: The graph, or its module. A module is recompiled if anything changed.

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

    def uuid(self) -> str:
        """Return a key for compile caches: what runs, for which sizes, and the versions.

        Raises:
            FingerprintError: A pass has content that no stable hash can be made of.
        """
        tokens = self._tokens()
        return fingerprint_of_functions((), self.pipeline.hash(), self.selection, tokens)


def _root(owner: object) -> torch.nn.Module:
    return owner if isinstance(owner, torch.nn.Module) else torch.nn.Module()
