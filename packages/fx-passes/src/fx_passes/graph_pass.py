"""Passes: named steps from graph to graph, frozen, with conditions before and after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fx_passes.errors import PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.normal_form.normalize import normalize_graph, spelled_otherwise
from fx_passes.reports.report import PassReport
from fx_passes.rewriting.rewriter import apply_rules
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

__all__ = [
    "Condition",
    "FunctionPass",
    "GraphPass",
    "NormalizePass",
    "RulePass",
    "pass_problem",
    "passes_problem",
    "rules_problem",
]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Something that must hold before or after a pass.

    Attributes:
        name: What must hold, in a few words.
        problem: Says what is wrong with a graph, or returns None. Must not change it.
    """

    name: str
    problem: Callable[[GraphModule], str | None]


@runtime_checkable
class GraphPass(Protocol):
    """What a pipeline runs. Implementations are frozen: what they know they know from birth."""

    @property
    def name(self) -> str:
        """Name in reports and errors, unique in a pipeline."""

    @property
    def after(self) -> tuple[str, ...]:
        """Names of passes that must stand before this one, if they are in the pipeline."""

    @property
    def repeats(self) -> bool:
        """Whether the pass runs again when a pass of the same round changed the graph."""

    @property
    def preconditions(self) -> tuple[Condition, ...]:
        """What must hold before the pass."""

    @property
    def postconditions(self) -> tuple[Condition, ...]:
        """What must hold after it."""

    def run(self, graph_module: GraphModule) -> PassReport:
        """Change the graph in place, without recompiling the module, and say what was done."""

    def fingerprint(self) -> str:
        """Return a hash of what the pass does, the same in every process."""


@dataclass(frozen=True, kw_only=True)
class NormalizePass:
    """Spells the calls of a graph as operator overloads; see `normalize_graph`."""

    name: str = "normalize"
    after: tuple[str, ...] = ()
    repeats: bool = False
    preconditions: tuple[Condition, ...] = ()
    postconditions: tuple[Condition, ...] = ()

    def run(self, graph_module: GraphModule) -> PassReport:
        """Normalise the graph."""
        changed = normalize_graph(graph_module)
        detail = f"{changed} nodes put into normal form"
        return PassReport(name=self.name, modified=changed > 0, detail=detail)

    def fingerprint(self) -> str:
        """Return a hash of what the pass does; its code belongs to the package's version."""
        return fingerprint_of_functions((), type(self).__name__, self.name)


@dataclass(frozen=True, kw_only=True)
class RulePass:
    """Applies rules in one pass over the graph; earlier rules take precedence.

    Attributes:
        rules: The rules; names are unique.
    """

    name: str
    rules: tuple[Rule, ...]
    after: tuple[str, ...] = ()
    repeats: bool = True
    preconditions: tuple[Condition, ...] = ()
    postconditions: tuple[Condition, ...] = ()

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
        reports = apply_rules(graph_module.graph, self.rules)
        modified = any(report.matches for report in reports)
        detail = "" if modified else _spelling_hint(graph_module)
        return PassReport(name=self.name, modified=modified, detail=detail, rules=reports)

    def exact(self) -> RulePass:
        """Return the pass with only those rules whose replacement gives the same bits."""
        rules = tuple(rule for rule in self.rules if rule.numerics == "exact")
        return RulePass(
            name=self.name,
            rules=rules,
            after=self.after,
            repeats=self.repeats,
            preconditions=self.preconditions,
            postconditions=self.postconditions,
        )

    def fingerprint(self) -> str:
        """Return a hash of the rules, in order."""
        rules = tuple(rule.fingerprint() for rule in self.rules)
        return fingerprint_of_functions((), type(self).__name__, self.name, self.repeats, rules)


@dataclass(frozen=True, kw_only=True)
class FunctionPass:
    """A pass that is a function.

    Attributes:
        function: Changes a module's graph in place, without recompiling, and returns whether it
            did. Must change nothing when run again on its own result.
    """

    name: str
    function: Callable[[GraphModule], bool]
    after: tuple[str, ...] = ()
    repeats: bool = False
    preconditions: tuple[Condition, ...] = field(default=())
    postconditions: tuple[Condition, ...] = field(default=())

    def run(self, graph_module: GraphModule) -> PassReport:
        """Call the function."""
        return PassReport(name=self.name, modified=bool(self.function(graph_module)))

    def fingerprint(self) -> str:
        """Return a hash of the function and what it reads; see `fingerprint_of_functions`."""
        kind = type(self).__name__
        return fingerprint_of_functions((self.function,), kind, self.name, self.repeats)


def pass_problem(item: object) -> str | None:
    """Return why something is no pass, with what to write instead, or None."""
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
    """Return why something is no tuple of passes, with what to write instead, or None."""
    if isinstance(passes, (Rule, GraphPass)):
        return "`passes` is one pass or rule, expected a tuple; write `passes=(NormalizePass(), x)`"
    if not isinstance(passes, (tuple, list)):
        return f"`passes` must be a tuple of passes, found {passes!r}"
    return next(filter(None, map(pass_problem, passes)), None)


def rules_problem(rules: object) -> str | None:
    """Return why something is no tuple of rules, with what to write instead, or None."""
    if isinstance(rules, Rule):
        return "`rules` is one rule, expected a tuple of them; write `rules=(rule,)`"
    if not isinstance(rules, (tuple, list)):
        return f"`rules` must be a tuple of rules, found {rules!r}"
    for position, each in enumerate(rules):
        if isinstance(each, (tuple, list)):
            return (
                f"`rules[{position}]` is a {type(each).__name__}; functions such as "
                "`fuse_add_rms_norm()` return tuples of rules: write `rules=(*first(), *second())`"
            )
        if not isinstance(each, Rule):
            return f"`rules[{position}]` must be a Rule, found {each!r}"
    return None


def _spelling_hint(graph_module: GraphModule) -> str:
    """Say where the normal form of a graph, in which rules are written, is missing."""
    others = spelled_otherwise(graph_module.graph)
    if not others:
        return ""
    return (
        f"{len(others)} nodes are not in normal form and match nothing, such as "
        f"`{others[0].name}`; put a NormalizePass before this pass"
    )
