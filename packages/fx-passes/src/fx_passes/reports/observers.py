"""Observers that look on between the passes of a pipeline."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING

from fx_passes.errors import PassError
from fx_passes.memory import OutsideWrites
from fx_passes.memory.effect import EffectTable
from fx_passes.reports.rewrite_comparison import ResultComparison, recorded_value_problem
from fx_passes.rewriting.cost import Cost, cost_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch.fx import GraphModule, Node

    from fx_passes.reports.report import MatchRecord, PassReport


class VerifyObserver:
    """Checks before and after every pass that the graph is well-formed and equivalent.

    No metadata may be lost. The fake value recorded for a new call must be the one that its
    operator computes (dtype, shape, strides); unknown properties, such as symbolic sizes, are
    assumed to be right. The graph must write the same inputs and tensors of the module as before,
    except those that a pass declares unnecessary (`PassReport.no_longer_written`). Raises a
    `PassError` that names the pass and its rules that matched.

    Costs about 20 microseconds per node and pass, and a millisecond for each new call.

    Args:
        execute: Whether each kind of rewrite is also run once, before and after, on small
            inputs: on the accelerator, or on the CPU if there is none. Calls without a kernel
            there, of other libraries' operators and of collectives are not run. Inputs are random,
            except those that the graph computes from others. Exact rules must give the
            same bits, others values within 16 roundings, or integers that differ by one.

    Attributes:
        not_decided: For each kind of rewrite that `execute` could not compare, the rule, the
            anchor of the match and the reason.
    """

    def __init__(self, *, execute: bool = False) -> None:
        self._known: set[str] = set()
        self._written: OutsideWrites | None = None
        self._execute = execute
        self._results: ResultComparison | None = None
        self._compared: set[object] = set()
        self.not_decided: list[tuple[str, str, str]] = []

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Take note of whether all values have metadata before the pass."""
        try:
            graph_module.graph.lint()
        except RuntimeError as error:
            raise PassError(
                f"verifying before the pass {name!r}: the graph it is given is not well formed: "
                f"{error}"
            ) from error
        self._known = {node.name for node in graph_module.graph.nodes if "val" not in node.meta}
        self._written = OutsideWrites.of(graph_module.graph)
        self._results = ResultComparison(graph_module.graph) if self._execute else None

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Check the graph."""
        try:
            graph_module.graph.lint()
        except RuntimeError as error:
            raise PassError(f"verifying after {_who(report)}: {error}") from error
        change = self._written and self._written.change(
            OutsideWrites.of(graph_module.graph), needless=report.no_longer_written
        )
        if change:
            raise PassError(
                f"verifying after {_who(report)}: the graph {change}; a pass must leave what a "
                "graph does to its inputs and to the tensors of its module as it is"
            )
        # Where more than the output node had none before, the graph came without metadata.
        lost = graph_module.graph.nodes if len(self._known) <= 1 else ()
        for node in lost:
            if node.op != "output" and "val" not in node.meta:
                raise PassError(
                    f"verifying after {_who(report)}: the new node `{node.name}` has no "
                    "meta['val'] though all nodes had one before; hand `val` to the graph builder"
                )
        nodes = {node.name: node for node in graph_module.graph.nodes}
        replaced = {
            old: new
            for rule in report.rules
            for match in rule.matches
            for old, new in match.replaced.items()
        }
        for rule in report.rules:
            for match in rule.matches:
                problem = self._problem(graph_module, nodes, match, replaced)
                if self._results is not None and self._results.undecided:
                    self.not_decided += [(rule.rule, *each) for each in self._results.undecided]
                    self._results.undecided.clear()
                if problem is not None:
                    raise PassError(
                        f"verifying the rule {rule.rule!r} at `{match.anchor}` after {_who(report)}"
                        f": {problem}"
                    )

    def _problem(
        self,
        graph_module: GraphModule,
        nodes: Mapping[str, Node],
        match: MatchRecord,
        replaced: Mapping[str, str],
    ) -> str | None:
        """Return how a rewrite differs from the nodes it replaced."""
        for name in match.created:
            if name in nodes and (problem := recorded_value_problem(nodes[name])) is not None:
                return problem
        if self._results is None:
            return None
        return self._results.problem(
            graph_module.graph, match, replaced=replaced, seen=self._compared
        )


def _who(report: PassReport) -> str:
    rules = [repr(rule.rule) for rule in report.rules if rule.matches]
    matched = f", whose rules {', '.join(rules)} matched" if rules else ""
    return f"the pass {report.name!r}{matched}"


class TimingObserver:
    """Measures the passes.

    Attributes:
        seconds: For each run of a pass its name and duration, in order; wall clock.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._begun = 0.0

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Start the clock."""
        del graph_module, name
        self._begun = time.perf_counter()

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Stop the clock."""
        del graph_module
        self.seconds.append((report.name, time.perf_counter() - self._begun))


class DiffObserver:
    """Keeps the changes of each pass, as a unified diff of the graph's text.

    Attributes:
        diffs: For each pass that changed the graph its name and the diff.
    """

    def __init__(self) -> None:
        self.diffs: list[tuple[str, str]] = []
        self._before: list[str] = []

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Keep the text of the graph."""
        del name
        self._before = str(graph_module.graph).splitlines()

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Compare with the text of the graph now."""
        after = str(graph_module.graph).splitlines()
        lines = list(
            difflib.unified_diff(
                self._before, after, f"before {report.name}", f"after {report.name}", lineterm=""
            )
        )
        if lines:
            self.diffs.append((report.name, "\n".join(lines)))


class DumpObserver:
    """Writes the graph before the first and after each pass into numbered files.

    Args:
        folder: Where the files go; made if it is missing. Existing files of these names are
            replaced.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Write the graph as it came, before the first pass."""
        del name
        if self._count == 0:
            self._write(graph_module, "input")

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Write the graph after a pass."""
        self._write(graph_module, report.name)

    def _write(self, graph_module: GraphModule, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._count:03d}-{name}.txt"
        path.write_text(f"{graph_module.graph}\n", encoding="utf-8")
        self._count += 1


class CostObserver:
    """Counts launches and bytes of a graph before and after the passes of one run.

    Before means after normalisation, if the pipeline normalises: a graph of Dynamo writes a
    launch in many ways, which only its normal form shows. Operators that the process knows nothing
    of count as launches. Serves one graph; a pass costs some microseconds a node.

    Attributes:
        before: What the graph cost; None until a pipeline has run.
        after: What it costs now; None until a pipeline has run.
    """

    def __init__(self) -> None:
        self.before: Cost | None = None
        self.after: Cost | None = None

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Count the graph before the first pass."""
        del name
        if self.before is None:
            self.before = self.after = _cost(graph_module)

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Count the graph again where a pass changed it."""
        if report.modified:
            self.after = _cost(graph_module)
        if report.name == "normalize" and report.round == 1:
            self.before = self.after


def _cost(graph_module: GraphModule) -> Cost:
    return cost_of(graph_module.graph.nodes, EffectTable())
