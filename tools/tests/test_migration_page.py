"""Every test that the pages for those who come from engines name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"


@pytest.mark.parametrize("page", ["migrate.md", "breakable-capture.md"])
def test_every_row_names_a_test_that_exists(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    # Tables whose last column names a test, each up to the next empty line.
    pattern = r"^\|[^\n]* test \|\n(.*?)(?:\n\n|\Z)"
    tables = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    rows = [row for table in tables for row in table.splitlines() if not row.startswith("|---")]
    assert len(rows) > 25
    for row in rows:
        found = re.search(r"\| `([\w/.-]+\.py)::(test_\w+)` \|$", row)
        assert found, row
        path, name = ROOT / found[1], found[2]
        assert path.exists(), row
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, row
