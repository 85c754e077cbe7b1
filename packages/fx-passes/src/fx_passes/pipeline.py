"""A pipeline: ordered passes, a bounded fix-point, observers, one report."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Protocol

import torch

from fx_passes.__about__ import __version__
from fx_passes.errors import FxPassesError, PassError, PipelineError
from fx_passes.fingerprint import fingerprint_of_functions
from fx_passes.graph_pass import GraphPass, RulePass, passes_problem
from fx_passes.reports.report import PassReport, Report
from fx_passes.snapshot import GraphSnapshot
from fx_passes.torch_internals import trace_artifact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule

    from fx_passes.rewriting.rule import Rule


# Passes that repeat run again while one of them changes the graph, at most so often.
_MOST_ROUNDS = 8


class PassObserver(Protocol):
    """Looks on between passes. May raise a `PassError`; must not change the graph."""

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Look at the graph before a pass."""

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Look at the graph after a pass. The module is not recompiled yet."""


@dataclass(frozen=True, kw_only=True)
class PipelineResult:
    """The result of a run.

    Attributes:
        modified: Whether the graph changed.
        report: The report of each pass.
    """

    modified: bool
    report: Report


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Ordered passes. A value: nothing is registered anywhere, and threads may share one.

    Attributes:
        passes: The passes in their order; names are unique.
        observers: Called around every pass; they do not count in the hash. An observer that keeps
            state serves one run at a time.
    """

    passes: tuple[GraphPass, ...]
    observers: tuple[PassObserver, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        problem = passes_problem(self.passes)
        if problem is not None:
            raise PipelineError(f"making a pipeline: {problem}")
        names = [each.name for each in self.passes]
        for position, each in enumerate(self.passes):
            if each.name in names[:position]:
                raise PipelineError(f"making a pipeline: two passes are named {each.name!r}")
            late = [name for name in each.after if name in names[position:]]
            if late:
                raise PipelineError(
                    f"making a pipeline: the pass {each.name!r} must come after {late}; the order "
                    f"is {names}"
                )

    def run(self, graph_module: GraphModule, *, require: tuple[str, ...] = ()) -> PipelineResult:
        """Run the passes on a module's graph, in place.

        The module is recompiled once, at the end, if anything changed. Where torch's structured
        trace is on (`TORCH_TRACE`), the graph before and after and the report are left in it.

        Args:
            graph_module: The module. Its graph may be of Dynamo's or of ATen's level.
            require: Names of rules each of which must match at least once. For a model of several
                graphs see `Report.require`.

        Returns:
            Whether the graph changed, and the report.

        Raises:
            PassError: A pass failed, or the last permitted round still changed the graph. The
                message names the pass and those before it.
            RuleError: A rule failed, or a required one matched nothing; the message has its near
                misses.
            PipelineError: The pipeline has no rule of a required name.
            FxPassesError: An observer found something wrong, or a pattern cannot be traced.

        After any of these the graph is as it was, in the same object, of new, equal nodes.
        """
        self._check_required(require)
        snapshot = GraphSnapshot(graph_module)
        # As code with shapes and data types, which the module need not be recompiled for.
        readable = partial(graph_module.print_readable, print_output=False)
        trace_artifact("fx_passes_before", readable)
        try:
            report = Report(passes=tuple(self._run_rounds(graph_module)))
            report.require(*require)
        except BaseException:
            snapshot.restore()
            raise
        trace_artifact("fx_passes_after", readable)
        trace_artifact("fx_passes_report", report.__str__)
        modified = any(each.modified for each in report.passes)
        if modified:
            graph_module.recompile()
        return PipelineResult(modified=modified, report=report)

    def hash(self) -> str:
        """Return a hash of the pipeline, for the key of a compile cache.

        Covers the passes in order, the source of their rules with the constants and functions that
        these read (see `fingerprint_of_functions`), which operators and vendor kernels the process
        has, and the versions of this package, of torch, and of torch_npu if installed.
        Equal in every process with the same content. Add the versions of other
        libraries that provide operators to your key.

        Raises:
            FingerprintError: A pass has content that cannot be hashed in a stable way.
        """
        parts = tuple(each.fingerprint() for each in self.passes)
        versions = (__version__, torch.__version__, _version_of("torch_npu"))
        return fingerprint_of_functions((), versions, parts)

    def without(self, *names: str) -> Pipeline:
        """Return the pipeline without the passes or rules of these names.

        Raises:
            PipelineError: A name is not in the pipeline.
        """
        known = self.names()
        for name in names:
            if name not in known:
                hint = _near(name, known)
                raise PipelineError(f"leaving {name!r} out of a pipeline: it has none{hint}")
        rest = self._with_rules(lambda rule: rule.name not in names)
        return replace(rest, passes=tuple(each for each in rest.passes if each.name not in names))

    def names(self) -> list[str]:
        """Return the names of all passes and rules, in order."""
        found: list[str] = []
        for each in self.passes:
            found.append(each.name)
            if isinstance(each, RulePass):
                found += [rule.name for rule in each.rules]
        return found

    def exact(self) -> Pipeline:
        """Return the pipeline with only those rules whose replacement gives the same bits."""
        return self._with_rules(lambda rule: rule.numerics == "exact")

    def _with_rules(self, keep: Callable[[Rule], bool]) -> Pipeline:
        passes = tuple(
            replace(each, rules=tuple(filter(keep, each.rules)))
            if isinstance(each, RulePass)
            else each
            for each in self.passes
        )
        return replace(self, passes=passes)

    def observed_by(self, *observers: PassObserver) -> Pipeline:
        """Return the pipeline with further observers."""
        return replace(self, observers=(*self.observers, *observers))

    def _check_required(self, require: tuple[str, ...] | str) -> None:
        if isinstance(require, str):
            raise PipelineError(
                f"running a pipeline: `require` is one name, expected a tuple; write "
                f"`require=({require!r},)`"
            )
        rules = [
            rule.name for each in self.passes if isinstance(each, RulePass) for rule in each.rules
        ]
        for name in require:
            if name not in rules:
                raise PipelineError(
                    f"running a pipeline that requires {name!r}: it has no rule of this name"
                    f"{_near(name, rules)}"
                )

    def _run_rounds(self, graph_module: GraphModule) -> list[PassReport]:
        reports: list[PassReport] = []
        prepared = any(each.prepares_weights for each in self.passes)
        passes = [
            replace(each, weights_are_prepared=prepared) if isinstance(each, RulePass) else each
            for each in self.passes
        ]
        for number in range(1, _MOST_ROUNDS + 1):
            modified = False
            for each in passes:
                if number > 1 and not each.repeats:
                    continue
                report = replace(self._run_pass(each, graph_module, reports), round=number)
                reports.append(report)
                modified = modified or (report.modified and each.repeats)
            if not modified:
                return reports
        changing = sorted(
            rule.rule
            for report in reports
            if report.round == _MOST_ROUNDS
            for rule in report.rules
            if rule.matches
        )
        raise PassError(
            f"running a pipeline: after {_MOST_ROUNDS} rounds the graph still changes; rules "
            f"that matched in the last round: {changing or 'none'}. What they build matches again, "
            "so they would never end"
        )

    def _run_pass(
        self, each: GraphPass, graph_module: GraphModule, before: Sequence[PassReport]
    ) -> PassReport:
        ran = ", ".join(dict.fromkeys(report.name for report in before)) or "none"
        for observer in self.observers:
            observer.before_pass(graph_module, each.name)
        try:
            report = each.run(graph_module)
        except FxPassesError as error:
            message = f"{error} (in the pass {each.name!r}; passes run before it: {ran})"
            raise type(error)(message) from error
        except Exception as error:
            raise PassError(
                f"running the pass {each.name!r}: {type(error).__name__}: {error}; passes run "
                f"before it: {ran}"
            ) from error
        for observer in self.observers:
            observer.after_pass(graph_module, report)
        return report


def _near(name: str, known: Sequence[str]) -> str:
    """Return which names may have been meant."""
    near = difflib.get_close_matches(name, known)
    return f"; near: {', '.join(near)}" if near else f"; known: {', '.join(known)}"


def _version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
