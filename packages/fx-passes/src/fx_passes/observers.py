"""Observers that look on between the passes of a pipeline."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING

from fx_passes.errors import ObserverError

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule

    from fx_passes.report import PassReport

__all__ = ["DiffObserver", "DumpObserver", "TimingObserver", "VerifyObserver"]


class VerifyObserver:
    """Checks before and after every pass that the graph is well formed and lost no metadata.

    Raises an `ObserverError` that names the pass and the rules of it that matched. Costs about 20
    microseconds a node and pass.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def before_pass(self, graph_module: GraphModule, name: str) -> None:
        """Take note of whether all values have metadata before the pass."""
        try:
            graph_module.graph.lint()
        except RuntimeError as error:
            raise ObserverError(
                f"verifying before the pass {name!r}: the graph it is given is not well formed: "
                f"{error}"
            ) from error
        self._known = {node.name for node in graph_module.graph.nodes if "val" not in node.meta}

    def after_pass(self, graph_module: GraphModule, report: PassReport) -> None:
        """Check the graph."""
        try:
            graph_module.graph.lint()
        except RuntimeError as error:
            raise ObserverError(f"verifying after {_who(report)}: {error}") from error
        if len(self._known) > 1:
            # More than the output node had none before, so the graph came without metadata.
            return
        for node in graph_module.graph.nodes:
            if node.op != "output" and "val" not in node.meta:
                raise ObserverError(
                    f"verifying after {_who(report)}: the new node `{node.name}` has no "
                    "meta['val'] though all nodes had one before; hand `val` to the graph builder"
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
    """Keeps what each pass changed, as a unified diff of the graph's text.

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
