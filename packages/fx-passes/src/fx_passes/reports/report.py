"""Matches and near misses of a pipeline's run, as data and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from fx_passes.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# So many near misses of a required rule stand in an error; a model has one for each layer.
_SHOWN_MISSES = 10
# More rules of a pass that found nothing are counted, not listed.
_SHOWN_SILENT = 3


@dataclass(frozen=True, kw_only=True)
class MatchRecord:
    """A rewrite.

    Attributes:
        anchor: Name of the node at which the pattern was found.
        removed: Names of the removed nodes.
        created: Names of the new nodes. Nodes that only changed what they compute are neither.
        literals: Literals of the graph bound to the pattern's parameters, as text.
        replaced: Maps the name of each replaced node to that of its replacement.
        exact: Whether the rule promises the same bits.
    """

    anchor: str
    removed: tuple[str, ...]
    created: tuple[str, ...]
    literals: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """A place that resembles the pattern and was not rewritten.

    Attributes:
        anchor: Name of the node at which the search began.
        reason: What was expected and what was found.
        nodes: Names of the nodes that the reason refers to.
        whole: Whether the whole pattern was found, so that a check or the rewriting rejected it;
            otherwise a part of the pattern is missing.
    """

    anchor: str
    reason: str
    nodes: tuple[str, ...]
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class RuleReport:
    """The results of one rule in one pass.

    Attributes:
        rule: Name of the rule.
        matches: The rewrites.
        near_misses: The near misses.
        waiting_for: Required operators that the process does not have; the rule was not tried.
        absent: For a rule that found nothing because the graph does not call its operators, one of
            these for each of its patterns.
        left_out: Why an optional rule was not tried; empty if it was.
    """

    rule: str
    matches: tuple[MatchRecord, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    waiting_for: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    left_out: str = ""


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What one pass did.

    Attributes:
        name: Name of the pass.
        modified: Whether it changed the graph.
        round: Round of the fix-point, from 1.
        detail: One line on what was done, for passes that are not made of rules.
        rules: One report for each of its rules.
        no_longer_written: Inputs and tensors of the module, by name, that the graph wrote before
            the pass and need not, as the caller of the pass said.
    """

    name: str
    modified: bool
    round: int = 1
    detail: str = ""
    rules: tuple[RuleReport, ...] = ()
    no_longer_written: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a pipeline did, pass by pass in the order they ran.

    Attributes:
        passes: One report for each run of a pass.
    """

    passes: tuple[PassReport, ...]

    def rule_reports(self, rule: str | None = None) -> Iterator[RuleReport]:
        """Return the reports of all rules, or of one, in order."""
        reports = (report for each in self.passes for report in each.rules)
        return (report for report in reports if rule is None or report.rule == rule)

    def matches(self, rule: str | None = None) -> tuple[MatchRecord, ...]:
        """Return all rewrites made, or those of one rule."""
        return tuple(match for report in self.rule_reports(rule) for match in report.matches)

    def near_misses(self, rule: str | None = None) -> tuple[NearMiss, ...]:
        """Return all places left alone, or those of one rule; each once, whatever the rounds."""
        found = {miss: None for report in self.rule_reports(rule) for miss in report.near_misses}
        return tuple(found)

    def match_counts(self) -> dict[str, int]:
        """Return how many rewrites each rule made, rules that made none included."""
        counts: dict[str, int] = {}
        for report in self.rule_reports():
            counts[report.rule] = counts.get(report.rule, 0) + len(report.matches)
        return counts

    def summary(self) -> str:
        """Return which rules made rewrites and how many, in one line, such as for a log."""
        made = [f"{rule} {count}" for rule, count in self.match_counts().items() if count]
        return ", ".join(made) or "nothing matched"

    def require(self, *rules: str) -> None:
        """Check that each of these rules made at least one rewrite.

        Raises:
            RuleError: One made none. The message says why, near misses with their reasons.
        """
        counts = self.match_counts()
        missing = [rule for rule in rules if not counts.get(rule)]
        if not missing:
            return
        lines = [line for rule in missing for line in self._why_nothing(rule)]
        raise RuleError(
            f"requiring rules to match: {', '.join(map(repr, missing))} matched nothing. Change "
            "the model or the rule by the reasons below, or require it no longer\n"
            + "\n".join(lines)
        )

    def _why_nothing(self, rule: str) -> list[str]:
        """Return why a rule made no rewrite, of all its runs together."""
        reports = list(self.rule_reports(rule))
        if not reports:
            return [f"  {rule!r}: no pass tried it"]
        misses = self.near_misses(rule)
        tried = [each for each in reports if not each.waiting_for and not each.left_out]
        said = replace(tried[0] if tried else reports[0], near_misses=misses)
        first, *others = _rule_lines(replace(said, absent=()) if misses else said)
        more = len(others) - _SHOWN_MISSES
        return [first, *others[:_SHOWN_MISSES], *([f"    and {more} more"] if more > 0 else [])]

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "no pass ran"

    def _lines(self) -> Iterator[str]:
        for each in self.passes:
            changed = "modified" if each.modified else "unchanged"
            yield f"{each.name} (round {each.round}): {changed}" + (
                f", {each.detail}" if each.detail else ""
            )
            yield from _lines_of_rules(each.rules)


def missing_operators(names: Iterable[str]) -> str:
    """Return that the process lacks some operators, and what to do about it."""
    missing = sorted(set(names))
    said = f"this process has no operator {', '.join(missing)}"
    if all(name.startswith("npu::") for name in missing):
        return (
            f"{said}: import torch_npu before you run the passes; without an NPU, start the "
            "program by `cann-sim run -- python ...` (package cann-sim)"
        )
    return f"{said}: import the library that registers it before you run the passes"


def _lines_of_rules(reports: Sequence[RuleReport]) -> Iterator[str]:
    """Yield what each rule did; many that found nothing are one line."""
    silent = [each for each in reports if not (each.matches or each.near_misses or each.left_out)]
    if len(silent) <= _SHOWN_SILENT:
        silent = []
    for each in reports:
        if each not in silent:
            yield from _rule_lines(each)
    waiting = [each for each in silent if each.waiting_for]
    if waiting:
        missing = missing_operators(name for each in waiting for name in each.waiting_for)
        yield f"  {len(waiting)} rules were not tried: {missing}"
    if len(silent) > len(waiting):
        yield f"  {len(silent) - len(waiting)} rules found nothing in the graph"


def _rule_lines(report: RuleReport) -> Iterator[str]:
    if report.waiting_for:
        yield f"  {report.rule}: not tried, {missing_operators(report.waiting_for)}"
        return
    if report.left_out:
        yield f"  {report.rule}: left out, {report.left_out}"
        return
    matches, misses = len(report.matches), len(report.near_misses)
    why = f"; the graph has no call of {' or '.join(report.absent)}" if report.absent else ""
    yield f"  {report.rule}: {matches} matched, {misses} near misses{why}"
    for match in report.matches:
        literals = ", ".join(f"{name}={value}" for name, value in match.literals.items())
        at = f"    + {match.anchor} -> {', '.join(match.created)}"
        yield f"{at} [{literals}]" if literals else at
    for miss in report.near_misses:
        yield f"    - {miss.anchor}: {miss.reason}"
