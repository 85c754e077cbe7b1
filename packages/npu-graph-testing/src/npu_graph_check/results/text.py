"""Results as text for a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from npu_graph_check.results.probe_result import ANSWERED, CONFIRMED, NOT_TRIED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_check.results.probe_result import ProbeResult
    from npu_graph_check.results.result_file import Results


_FEW = 5


def as_text(results: Results, *, in_full: bool) -> str:
    """Return results as lines of text.

    Args:
        results: results of a run.
        in_full: include every probe with its title; otherwise only those not confirmed, and more
            than a few that were not tried for one reason as one line.
    """
    lines = []
    if in_full:
        lines += [f"{name}: {value}" for name, value in results.environment.items()]
        lines += [f"begun: {results.begun}", f"ended: {results.ended or 'not: it was killed'}", ""]
    untried = Counter(each.because for each in results.probes if each.verdict == NOT_TRIED)
    for result in results.probes:
        many = result.verdict == NOT_TRIED and untried[result.because] > _FEW
        if in_full or (result.verdict != CONFIRMED and not many):
            lines += _probe(result, in_full=in_full)
    if not in_full:
        lines += [
            f"not tried: {count} probes ({because})"
            for because, count in untried.items()
            if count > _FEW
        ]
    return "".join(f"{line}\n" for line in (*lines, summary(results)))


def summary(results: Results) -> str:
    """Return how many probes have which verdict."""
    counts = Counter(result.verdict for result in results.probes)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def _probe(result: ProbeResult, *, in_full: bool) -> Iterator[str]:
    yield f"{result.verdict}: {result.id}" + (f" ({result.because})" if result.because else "")
    if in_full:
        rows = f" [{', '.join(result.rows)}]" if result.rows else ""
        yield f"    {result.title}{rows}"
    for seen in result.observations:
        if not seen.agrees:
            yield f"    {seen.what}: seen {seen.seen!r}, expected {seen.expected!r}"
        elif in_full:
            yield f"    {seen.what}: {seen.seen!r}"
    if in_full or result.verdict == ANSWERED:
        for figure in result.figures:
            yield f"    {figure.name}: {figure.value} {figure.unit}".rstrip()
