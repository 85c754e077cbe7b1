"""Results as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_graph_check.results.result_file import Results


def as_page(results: Results) -> str:
    """Return the page."""
    return f"<!doctype html><pre>{results}</pre>"
