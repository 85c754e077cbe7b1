"""Rules in the form that Inductor's pattern matcher takes: two functions and example inputs."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

from fx_passes.errors import PatternError, RuleError
from fx_passes.fingerprint import fingerprint_of_code, fingerprint_of_functions
from fx_passes.inductor.example_trace import ExampleTracer
from fx_passes.inductor.replacement_pattern import (
    Conditions,
    ReplacementPattern,
    ReplacementTemplate,
)
from fx_passes.matching.match import NoMatch
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    import torch
    from torch.fx import Node

    from fx_passes.matching.match import Match
    from fx_passes.matching.pattern import CompiledPattern
    from fx_passes.rewriting.graph_builder import GraphBuilder


@dataclass(frozen=True, kw_only=True)
class MatchForExtraCheck:
    """A match in the form that an `extra_check` for Inductor's matcher expects.

    Attributes:
        nodes: All nodes that the replacement removes, in the order of the graph.
        kwargs: The node or literal of each parameter of the search function.
        outputs: The nodes that compute the results of the search function.
    """

    nodes: list[Node]
    kwargs: dict[str, object]
    outputs: tuple[Node, ...]

    def output_node(self) -> Node:
        """Return the node that computes the first result of the search function."""
        return self.outputs[0]


class _Traced(NamedTuple):
    patterns: tuple[ReplacementPattern, ...]
    template: ReplacementTemplate
    conditions: Conditions


class _Replacement:
    """The two functions, traced together at the first use, and once for each choice of dtypes."""

    def __init__(
        self,
        search_fn: Callable[..., object],
        replace_fn: Callable[..., object],
        example_inputs: Sequence[torch.Tensor] | Callable[[], Sequence[torch.Tensor]],
        extra_check: Callable[[MatchForExtraCheck], bool] | None,
        scalars: Mapping[str, object],
    ) -> None:
        self._search = search_fn
        self._replace = replace_fn
        self._examples = example_inputs
        self._extra_check = extra_check
        self._scalars = dict(scalars)
        self.parameters, found = (
            tuple(signature(each).parameters) for each in (search_fn, replace_fn)
        )
        if found != self.parameters:
            raise PatternError(
                f"reading a replacement: the search function has the parameters {self.parameters}, "
                f"the replacement {found}; they must be the same"
            )

        self._variants: dict[tuple[tuple[str, torch.dtype], ...], _Traced | PatternError] = {}

    @property
    def traced(self) -> _Traced:
        """The functions on the examples as they are.

        Raises:
            PatternError: They cannot be traced.
        """
        traced = self._variant({})
        if isinstance(traced, PatternError):
            raise traced
        return traced

    def _variant(self, dtypes: Mapping[str, torch.dtype]) -> _Traced | PatternError:
        key = tuple(sorted(dtypes.items()))
        found = self._variants.get(key)
        if found is None:
            try:
                found = self._trace(dtypes)
            except PatternError as error:
                found = error
            self._variants[key] = found
        return found

    def _traced_for(self, match: Match) -> _Traced | NoMatch:
        """Return the functions as they are on the dtypes of a match."""
        dtypes = self.traced.conditions.dtypes(match)
        others = ", ".join(f"`{name}` is {dtype}" for name, dtype in dtypes.items())
        found = self._variant(dtypes)
        if isinstance(found, PatternError):
            return NoMatch(f"{others}, other than the example input, on which {found}")
        if [each.text for each in found.patterns] != [each.text for each in self.traced.patterns]:
            return NoMatch(
                f"{others}, other than the example input, and on that the search function calls "
                "other operators; make a rule with examples of these dtypes"
            )
        return found

    def _trace(self, dtypes: Mapping[str, torch.dtype]) -> _Traced:
        tracer = ExampleTracer(self.parameters, self._examples, self._scalars, dtypes)
        name = str(getattr(self._search, "__qualname__", self._search))
        searches = [tracer.trace(self._search, composite=each) for each in (False, True)]
        replaced = tracer.trace(self._replace, composite=False)
        wanted, found = len(searches[0].outputs), len(replaced.outputs)
        if wanted != found:
            raise PatternError(
                f"tracing the replacement of {name}: it returns {found} tensors, the search "
                f"function {wanted}"
            )
        device = next(iter(tracer.tensors.values())).device
        template, conditions = ReplacementTemplate(name, replaced, device), Conditions(tracer)
        if str(searches[0].graph) == str(searches[1].graph):
            searches.pop()
        patterns = tuple(
            ReplacementPattern(name, each, prefix=f"_{index}")
            for index, each in enumerate(searches)
        )
        return _Traced(patterns, template, conditions)

    def compile(self) -> tuple[CompiledPattern, ...]:
        return tuple(pattern.compiled for pattern in self.traced.patterns)

    def check(self, match: Match) -> NoMatch | None:
        traced = self._traced_for(match)
        if isinstance(traced, NoMatch):
            return traced
        known = traced.conditions.sizes(match)
        if isinstance(known, NoMatch):
            return known
        for pattern in traced.patterns:
            problem = pattern.problem(match, known)
            if problem is not None:
                return problem
        if self._extra_check is None:
            return None
        seen = MatchForExtraCheck(
            nodes=list(match.nodes),
            kwargs={name: match.bound[name] for name in self.parameters if name in match.bound},
            outputs=tuple(match.outputs.values()),
        )
        try:
            accepted = self._extra_check(seen)
        except Exception as error:  # noqa: BLE001 - others wrote it, for another matcher
            return NoMatch(f"extra_check raised {type(error).__name__}: {error}", match.nodes)
        return None if accepted else NoMatch("extra_check says no", match.nodes)

    def rewrite(self, match: Match, build: GraphBuilder) -> dict[str, Node]:
        traced = self._traced_for(match)
        if isinstance(traced, NoMatch):
            raise RuleError(f"building a replacement: the match was not checked: {traced.reason}")
        return traced.template.build(match, build)

    def fingerprint(self) -> str:
        traced = self._variant({})
        if isinstance(traced, PatternError):
            # It does nothing, and where it can be traced its hash is another.
            return fingerprint_of_functions((), "left out")
        tensors = traced.conditions.tensors.items()
        parts = (
            *(pattern.text for pattern in traced.patterns),
            str(traced.template.graph),
            *(str((name, each.dtype, each.device, each.dim())) for name, each in tensors),
            *map(str, traced.conditions.guards),
            # What the functions do on other dtypes is not traced yet.
            *(fingerprint_of_code(each) for each in (self._search, self._replace)),
        )
        checks = () if self._extra_check is None else (self._extra_check,)
        return fingerprint_of_functions(checks, *parts)


def rule_from_replacement(
    search_fn: Callable[..., object],
    replace_fn: Callable[..., object],
    example_inputs: Sequence[torch.Tensor] | Callable[[], Sequence[torch.Tensor]],
    extra_check: Callable[[MatchForExtraCheck], bool] | None = None,
    scalar_workaround: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    operators: tuple[str, ...] = (),
) -> Rule:
    """Create a rule from arguments of `torch._inductor.pattern_matcher.register_replacement`.

    Both functions are traced once, at the first use of the rule, on fake tensors with symbolic
    sizes. No device is needed, and nothing is traced again at a match, except once for dtypes that
    differ from the examples. Sizes that the functions compute from shapes are computed again at
    every match. Relations between sizes that held during the trace must also hold there; otherwise
    the rule does not apply and reports this.

    The rule is `optional`: if the functions cannot be traced on the examples, it is omitted and
    the report says why. A match at which the replacement or `extra_check` fails is also omitted.

    Differences from Inductor: nothing is registered; ranks of the examples count (create one
    rule for each), and so do their dtypes if the search function calls different operators for
    them; a float in `scalar_workaround` matches any value, other numbers there match only
    themselves; a value inside the match that is used elsewhere, written in between or on another
    stream prevents the match.

    Args:
        search_fn: The pattern; returns one tensor or a tuple, list or dict of tensors.
        replace_fn: The replacement; same parameters, the same number of results in the same order.
        example_inputs: A tensor for each parameter that is not a scalar, in order; or a function
            that creates them, which may name a device that does not exist in the process.
        extra_check: Called at a match; False rejects it.
        scalar_workaround: Values of parameters that are numbers.
        name: Name of the rule; by default the qualified name of `search_fn`.
        operators: Operators that must exist, otherwise the rule does not run; see `Rule`.

    Raises:
        PatternError: The parameters of the functions differ. `Rule.compiled` of the rule also
            raises it if the functions cannot be traced, write memory, create constants, return
            different numbers of tensors, or compute with a scalar of `scalar_workaround` outside
            operators.
    """
    replacement = _Replacement(
        search_fn, replace_fn, example_inputs, extra_check, scalar_workaround or {}
    )
    return Rule(
        name=name or str(getattr(search_fn, "__qualname__", search_fn)),
        patterns=(replacement,),
        check=replacement.check,
        rewrite=replacement.rewrite,
        operators=operators,
        numerics="rounding",
        accepts_cost=True,
        optional=True,
    )


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken, with a number behind it if need be."""
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


class Replacements:
    """Collects the patterns of code that calls `register_replacement` of npugraph_ex or torchair.

    Pass `replacements.register_replacement` to that code instead of theirs, then call
    `PostGradPasses.add(replacements.rules)`. Their function puts all patterns of a process into one
    table; this object belongs to you, and registers nothing.

    Attributes:
        rules: One for each registration, in order.
    """

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] = ()
        self._known: list[tuple[object, object]] = []

    def register_replacement(
        self,
        search_fn: Callable[..., object],
        replace_fn: Callable[..., object],
        example_inputs: Sequence[torch.Tensor] | Callable[[], Sequence[torch.Tensor]],
        trace_fn: object = None,
        extra_check: Callable[[MatchForExtraCheck], bool] | None = None,
        search_fn_pattern: object = None,
        scalar_workaround: Mapping[str, object] | None = None,
        skip_duplicates: bool = False,
    ) -> None:
        """Make a rule; the parameters are those of npugraph_ex, in their order.

        Args:
            search_fn: See `rule_from_replacement`.
            replace_fn: The same.
            example_inputs: The same.
            trace_fn: Not read: this package traces by itself, forward only.
            extra_check: See `rule_from_replacement`. Nodes on several streams, or of several
                scopes of execution, are refused without it.
            search_fn_pattern: Must be None.
            scalar_workaround: See `rule_from_replacement`.
            skip_duplicates: Whether the same two functions registered again are one rule.

        Raises:
            PatternError: A pattern that Inductor compiled was given, or the two functions have
                other parameters.
        """
        del trace_fn
        name = str(getattr(search_fn, "__qualname__", search_fn))
        if search_fn_pattern is not None:
            raise PatternError(
                f"registering the replacement {name!r}: expected a search function, found a "
                "pattern that Inductor compiled (search_fn_pattern), which says nothing of the "
                "operators' defaults; write the search function out and leave the pattern away"
            )
        if skip_duplicates and (search_fn, replace_fn) in self._known:
            return
        self._known.append((search_fn, replace_fn))
        free = free_name(name, {rule.name for rule in self.rules})
        rule = rule_from_replacement(
            search_fn, replace_fn, example_inputs, extra_check, scalar_workaround, name=free
        )
        self.rules = (*self.rules, rule)
