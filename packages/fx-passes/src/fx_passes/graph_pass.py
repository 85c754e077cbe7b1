"""Passes: named, frozen steps from graph to graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from types import FunctionType
from typing import TYPE_CHECKING

from fx_passes.errors import PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.normal_form.normalize import normalize_graph, spelled_otherwise
from fx_passes.reports.report import PassReport
from fx_passes.rewriting.rewriter import apply_rules
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule


@dataclass(frozen=True, kw_only=True)
class GraphPass(ABC):
    """One step of a pipeline. Subclass it and write `run`; further settings are further fields.

    Passes are frozen, so that threads can share them.

    Attributes:
        name: Name in reports and errors, unique in a pipeline.
        after: Names of passes that must come before this one, if they are in the pipeline.
        repeats: Whether the pass runs again when a pass of the same round changed the graph.
    """

    name: str
    after: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def prepares_weights(self) -> bool:
        """Whether the pass moves what depends only on weights out of the step."""
        return False

    @abstractmethod
    def run(self, graph_module: GraphModule) -> PassReport:
        """Change the graph in place, without recompiling the module, and return a report."""

    def fingerprint(self) -> str:
        """Return a hash of the class and its fields, the same in every process.

        Covers the methods of the class and what they read, see `fingerprint_of_functions`.

        Raises:
            FingerprintError: A field has content that cannot be hashed in a stable way.
        """
        kind = type(self)
        own = [
            method
            for each in kind.__mro__
            if each.__module__.partition(".")[0] not in {"abc", "builtins", "fx_passes"}
            for method in vars(each).values()
            if isinstance(method, FunctionType)
        ]
        values = tuple((each.name, getattr(self, each.name)) for each in fields(self))
        return fingerprint_of_functions((*own, values), kind.__qualname__)


@dataclass(frozen=True, kw_only=True)
class NormalizePass(GraphPass):
    """Spells the calls of a graph as operator overloads; see `normalize_graph`."""

    name: str = "normalize"

    def run(self, graph_module: GraphModule) -> PassReport:
        """Normalise the graph."""
        changed = normalize_graph(graph_module)
        detail = f"{changed} nodes put into normal form"
        return PassReport(name=self.name, modified=changed > 0, detail=detail)


@dataclass(frozen=True, kw_only=True)
class RulePass(GraphPass):
    """Applies rules in one pass over the graph; earlier rules take precedence.

    Attributes:
        rules: The rules; names are unique.
        weights_are_prepared: Whether another pass of the pipeline moves what depends only on
            weights out of the step, so that it costs nothing. A pipeline sets this when it runs.
    """

    rules: tuple[Rule, ...]
    repeats: bool = True
    weights_are_prepared: bool = False

    def __post_init__(self) -> None:
        problem = rules_problem(self.rules)
        if problem is not None:
            raise PipelineError(f"making the pass {self.name!r}: {problem}")
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PipelineError(f"making the pass {self.name!r}: two rules are named {twice}")

    def run(self, graph_module: GraphModule) -> PassReport:
        """Apply the rules."""
        reports = apply_rules(
            graph_module.graph, self.rules, weights_are_prepared=self.weights_are_prepared
        )
        modified = any(report.matches for report in reports)
        detail = ""
        # Rules need a graph that is normalised.
        others = [] if modified else spelled_otherwise(graph_module.graph)
        if others:
            detail = (
                f"{len(others)} nodes are not in normal form and match nothing, such as "
                f"`{others[0].name}`; put a NormalizePass before this pass"
            )
        return PassReport(name=self.name, modified=modified, detail=detail, rules=reports)


@dataclass(frozen=True, kw_only=True)
class FunctionPass(GraphPass):
    """A pass that is a function.

    Attributes:
        function: Changes a module's graph in place, without recompiling, and returns whether it
            did. Must change nothing when run again on its own result.
    """

    function: Callable[[GraphModule], bool]

    def run(self, graph_module: GraphModule) -> PassReport:
        """Call the function."""
        return PassReport(name=self.name, modified=bool(self.function(graph_module)))


def pass_problem(item: object) -> str | None:
    """Return why an object is not a pass, with what to write instead, or None."""
    if isinstance(item, Rule):
        return (
            f"the rule {item.name!r} is no pass; write `RulePass(name=..., rules=(rule,))` with "
            "the rule in it"
        )
    if isinstance(item, (tuple, list)):
        return f"expected a pass, found a {type(item).__name__}; write `*` before it"
    if not isinstance(item, GraphPass):
        hint = "; wrap a function that takes a GraphModule in a FunctionPass"
        return f"expected a pass, found {item!r}" + (hint if callable(item) else "")
    after: object = item.after
    if isinstance(after, str):
        return (
            f"`after` of the pass {item.name!r} is one name, expected a tuple; write "
            f"`after=({after!r},)`"
        )
    return None


def passes_problem(passes: object) -> str | None:
    """Return why an object is not a tuple of passes, with what to write instead, or None."""
    if isinstance(passes, (Rule, GraphPass)):
        return "`passes` is one pass or rule, expected a tuple; write `passes=(NormalizePass(), x)`"
    if not isinstance(passes, (tuple, list)):
        return f"`passes` must be a tuple of passes, found {passes!r}"
    return next(filter(None, map(pass_problem, passes)), None)


def rules_problem(rules: object) -> str | None:
    """Return why an object is not a tuple of rules, with what to write instead, or None."""
    if isinstance(rules, Rule):
        return "`rules` is one rule, expected a tuple of them; write `rules=(rule,)`"
    if not isinstance(rules, (tuple, list)):
        return f"`rules` must be a tuple of rules, found {rules!r}"
    for position, each in enumerate(rules):
        if isinstance(each, (tuple, list)):
            return (
                f"`rules[{position}]` is a {type(each).__name__}; functions such as "
                "`remove_noops()` return several rules: write `rules=(first(), *second())`"
            )
        if not isinstance(each, Rule):
            return f"`rules[{position}]` must be a Rule, found {each!r}"
    return None
