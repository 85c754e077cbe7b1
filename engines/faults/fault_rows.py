"""The rows of seeded faults: a table, the failures, and the exit status."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table


def conclude_faults(rows: list[dict[str, Any]], title: str) -> int:
    """Print the faults by engine and kind, and the failures; return the exit status.

    Args:
        rows: One for each fault: ``engine``, ``kind``, ``seed``, the error that was ``told``, if
            there was one, and what was ``wrong``.
        title: Title of the table.
    """
    table = Table(
        "engine", "what fails", "faults", "named errors", "no error", "wrong", title=title
    )
    kinds = Counter((row["engine"], row["kind"]) for row in rows)
    for (name, kind), count in sorted(kinds.items()):
        own = [row for row in rows if (row["engine"], row["kind"]) == (name, kind)]
        named = sum(bool(row["told"]) for row in own)
        wrong = sum(bool(row["wrong"]) for row in own)
        table.add_row(name, kind, *map(str, (count, named, count - named, wrong)))
    Console(width=120).print(table)
    for row in rows:
        if row["wrong"]:
            what = f"{row['engine']}, seed {row['seed']}, {row['kind']}"
            print(f"{what}: {', '.join(row['wrong'])}; {row['told']}")
    met = {row["kind"] for row in rows if row["told"]}
    unmet = {row["kind"] for row in rows} - met
    print("\n".join(f"{kind}: nothing failed by it" for kind in sorted(unmet)), end="")
    return 1 if unmet or any(row["wrong"] for row in rows) else 0
