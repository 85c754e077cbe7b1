"""Every test that the page on migration names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "migrate.md"


def test_every_row_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [row for row in rows if not row.startswith(("| theirs", "|---"))]
    assert len(rows) > 25
    for row in rows:
        found = re.search(r"\| `([\w/.-]+\.py)::(test_\w+)` \|$", row)
        assert found, row
        path, name = ROOT / found[1], found[2]
        assert path.exists(), row
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, row
