"""A rule: a pattern, a check that says why not, and a rewrite that builds and never traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch.fx import Node

from fx_passes.errors import PatternError, PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import CompiledPattern, compile_pattern
from fx_passes.normal_form.operator_signature import find_operator
from fx_passes.rewriting.graph_builder import GraphBuilder

if TYPE_CHECKING:
    from typing import Literal

_NUMERICS = ("exact", "rounding")


Pattern = Callable[..., Mapping[str, object]]


@runtime_checkable
class PatternSource(Protocol):
    """Patterns that come from elsewhere than from a function that `compile_pattern` takes."""

    def compile(self) -> tuple[CompiledPattern, ...]:
        """Return the patterns, alternatives of each other; called once for each rule."""

    def fingerprint(self) -> str:
        """Return a hash of the patterns, the same in every process."""


Check = Callable[[Match], "NoMatch | None"]
Rewrite = Callable[[Match, GraphBuilder], Mapping[str, Node]]


def accept(match: Match) -> NoMatch | None:
    """Accept every match; the check of a rule that has no conditions."""
    del match
    return None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rewriting rule; a value, free of state but for its traced patterns.

    Attributes:
        name: Name in reports and errors, unique in a pipeline.
        patterns: Plain functions on tensors, alternatives of each other, tried in order. They have
            the same output names. Each is traced once, at the first use of the rule, on no device.
            See `compile_pattern`. A `PatternSource` brings traced ones.
        rewrite: Creates the replacement with the builder it is given and returns, for each output
            in `match.needed`, the node that replaces it.
        check: Returns None if the rule applies to a match, else the reason why it does not. It sees
            literals bound to pattern parameters (`match.bound`) and fake values (`match.value`).
        operators: Qualified names of the operators that must exist in the process, those of the
            patterns and of the rewrite. Where one is missing the rule is not tried; the report
            says so.
        numerics: `exact` if the replacement gives the same bits everywhere; `rounding` if it
            equals in exact arithmetic but may round elsewhere.
        shares_memory: Whether a replacement may share memory with an input of the match, where the
            replaced node need not; then nothing may write either of them later.
        accepts_cost: Whether a rewrite is made though its new nodes launch more operators or move
            more bytes than those they replace, because something recovers that later: a
            later rule, the sharing of equal calls, or work that several ranks share.
        reports_near_misses: Whether places where the rule does not apply are worth a word.
        optional: For rules that others wrote, for other matchers: where the patterns cannot be
            traced, the rule is left out and the report says so; where the rewrite fails at a match,
            that is a near miss. Else both are errors.
        prepare: Called before the first use in a run; defines operators of one's own. Must be
            harmless when repeated.
    """

    name: str
    patterns: tuple[Pattern | PatternSource, ...]
    rewrite: Rewrite
    check: Check = accept
    operators: tuple[str, ...] = ()
    numerics: Literal["exact", "rounding"] = "exact"
    shares_memory: bool = False
    accepts_cost: bool = False
    reports_near_misses: bool = True
    optional: bool = False
    prepare: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        problem = (
            _patterns_problem(self.patterns)
            or _callable_problem("rewrite", self.rewrite, may_be_none=False)
            or _callable_problem("check", self.check, may_be_none=False)
            or _callable_problem("prepare", self.prepare, may_be_none=True)
            or _operators_problem(self.operators)
        )
        if problem is None and self.numerics not in _NUMERICS:
            near = get_close_matches(str(self.numerics), _NUMERICS)
            hint = f"; near: {near[0]}" if near else ""
            problem = f"`numerics` must be one of {_NUMERICS}, found {self.numerics!r}{hint}"
        if problem is not None:
            raise PipelineError(f"making the rule {self.name!r}: {problem}")

    @cached_property
    def compiled(self) -> tuple[CompiledPattern, ...]:
        """The traced patterns.

        Raises:
            PatternError: A pattern cannot be traced, or the alternatives differ in their outputs.
        """
        compiled: list[CompiledPattern] = []
        try:
            for pattern in self.patterns:
                if isinstance(pattern, PatternSource):
                    compiled += pattern.compile()
                else:
                    compiled.append(compile_pattern(pattern))
        except PatternError as error:
            raise PatternError(f"{error} (in the rule {self.name!r})") from error
        outputs = [set(each.outputs) for each in compiled]
        if any(each != outputs[0] for each in outputs):
            raise PatternError(
                f"tracing the rule {self.name!r}: its patterns have different outputs, "
                f"{[sorted(each) for each in outputs]}; alternatives must have the same"
            )
        return tuple(compiled)

    def missing_operators(self) -> tuple[str, ...]:
        """Return the required operators that this process does not have."""
        return tuple(name for name in self.operators if find_operator(name) is None)

    def fingerprint(self) -> str:
        """Return a hash of what the rule does.

        Covers its functions and what they read, see `fingerprint_of_functions`; its name, operators
        and promises; and which operators the process lacks, because it is not tried without them.
        """
        if self.prepare is not None:
            self.prepare()
        return fingerprint_of_functions(
            (*self.patterns, self.check, self.rewrite),
            self.name,
            self.operators,
            self.missing_operators(),
            self.numerics,
            self.shares_memory,
            self.accepts_cost,
            self.optional,
        )


def _patterns_problem(patterns: object) -> str | None:
    if callable(patterns) or isinstance(patterns, PatternSource):
        return "`patterns` is one pattern, expected a tuple of them; write `patterns=(pattern,)`"
    if not isinstance(patterns, (tuple, list)):
        return f"`patterns` must be a tuple of functions, found {patterns!r}"
    if not patterns:
        return "it has no pattern"
    for position, each in enumerate(patterns):
        if not callable(each) and not isinstance(each, PatternSource):
            return f"`patterns[{position}]` must be a function on tensors, found {each!r}"
    return None


def _callable_problem(name: str, value: object, *, may_be_none: bool) -> str | None:
    if callable(value) or (may_be_none and value is None):
        return None
    hint = "; leave it out to accept every match" if name == "check" else ""
    return f"`{name}` must be a function, found {value!r}{hint}"


def _operators_problem(operators: object) -> str | None:
    if isinstance(operators, str):
        return f"`operators` is one name, expected a tuple; write `operators=({operators!r},)`"
    if not isinstance(operators, (tuple, list)):
        return f"`operators` must be a tuple of names, found {operators!r}"
    for name in operators:
        if not isinstance(name, str) or "::" not in name:
            return (
                f"`operators` holds {name!r}; write the qualified name of an operator, such as "
                "'aten::add' or 'npu::npu_rms_norm'"
            )
    return None
