"""The rows of docs/fidelity.md, as the wheel has them.

``rows.json`` is made from that page by ``python tools/fidelity_register.py --write``; the page is
the source.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def all_rows() -> dict[str, dict[str, str]]:
    """Return every row by its id, with its ``behaviour``, ``source`` and ``observed`` columns."""
    text = resources.files("npu_graph_check.register").joinpath("rows.json").read_text("utf-8")
    rows: dict[str, dict[str, str]] = json.loads(text)
    return rows


def row_words(ids: Sequence[str]) -> dict[str, str]:
    """Return the behaviour that rows state, by id; a row that is not known is left out."""
    if not ids:
        return {}
    rows = all_rows()
    return {row: rows[row]["behaviour"] for row in ids if row in rows}
