"""Figures of the tests on each release of torch, kept as rows and shown as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sessions.testing.compat_results import CompatResult, keep_result, read_result

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase name="a"/><testcase name="b"/>
<testcase name="c"><failure message="assert 1 == 2&#10;more">text</failure></testcase>
<testcase name="d"><error message="no device">text</error></testcase>
<testcase name="e"><skipped message="needs a GPU"/></testcase>
<testcase name="f"><skipped message="needs a GPU"/></testcase>
</testsuite></testsuites>"""


def _result(**changes: object) -> CompatResult:
    fields: dict[str, object] = {
        "package": "leaf",
        "torch": "2.10.0 CPU",
        "torch_npu": "-",
        "python": "3.11.7",
        "tests": "all",
        "passed": 2,
        "failed": 0,
        "skipped": 0,
        "reasons": (),
    }
    return CompatResult(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    rows, page = tmp_path / "versions.json", tmp_path / "versions.md"
    rows.write_text("[]\n")
    page.write_text("Before.\n<!-- rows -->\nold\n<!-- end of rows -->\nAfter.\n")
    return {"rows": rows, "page": page}


def test_a_report_is_counted_with_its_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    python = tmp_path / "python"
    described = json.dumps({"torch": "2.10.0 CUDA", "torch_npu": "-", "python": "3.12.1"})
    python.write_text(f"#!/bin/sh\necho '{described}'\n")
    python.chmod(0o755)

    result = read_result(report, package="leaf", python=str(python), tests="all")

    assert (result.passed, result.failed, result.skipped) == (2, 2, 2)
    assert result.torch == "2.10.0 CUDA"
    assert result.reasons == (
        "1 error: no device",
        "1 failure: assert 1 == 2",
        "2 skipped: needs a GPU",
    )


def test_rows_are_in_the_page_and_its_other_text_stays(files: dict[str, Path]) -> None:
    keep_result(_result(), **files)
    text = files["page"].read_text()
    assert text.startswith("Before.\n<!-- rows -->\n| package |")
    assert text.endswith("<!-- end of rows -->\nAfter.\n")
    assert "| leaf | 2.10.0 CPU | - | 3.11.7 | all | 2 | 0 | 0 |  |" in text
    assert "old" not in text


def test_a_newer_result_of_the_same_environment_replaces_the_older(files: dict[str, Path]) -> None:
    keep_result(_result(), **files)
    keep_result(_result(python="3.12.1"), **files)
    keep_result(_result(passed=3), **files)

    kept = json.loads(files["rows"].read_text())
    assert [(row["python"], row["passed"]) for row in kept] == [("3.11.7", 3), ("3.12.1", 2)]


def test_a_reason_with_a_bar_keeps_the_table_whole(files: dict[str, Path]) -> None:
    keep_result(_result(reasons=("1 failure: a | b",)), **files)
    row = next(line for line in files["page"].read_text().splitlines() if "leaf" in line)
    assert row.count("|") == 10
