"""Tables of probes, written as text."""

from __future__ import annotations

import re

from npu_graph_check.probe import Probe


def probes_of(package: str, table: str, *, limit_s: float = 60.0) -> tuple[Probe, ...]:
    """Return the probes of a table.

    Args:
        package: the package of the probes' functions, below `npu_graph_check.probes`. Their group
            is the first part of its name.
        table: for each probe a line ``<name> <module>:<function> <rows>``, with the rows of
            docs/fidelity.md separated by spaces, then the title as an indented line, then the risk
            as another, where there is one.
        limit_s: the limit of each probe, in seconds.
    """
    found = []
    for entry in re.split(r"\n(?=\S)", table.strip()):
        line, title, *risk = (part.strip() for part in entry.splitlines())
        name, run, *rows = line.split()
        probe = Probe(
            id=f"{package.partition('.')[0]}.{name}",
            title=title,
            run=f"npu_graph_check.probes.{package}.{run}",
            rows=tuple(rows),
            limit_s=limit_s,
            risk="".join(risk),
        )
        found.append(probe)
    return tuple(found)
