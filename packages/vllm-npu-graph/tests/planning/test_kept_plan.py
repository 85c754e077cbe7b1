"""Plans in files: found again for equal factors only, and never trusted if they are wrong."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING

import pytest

from vllm_npu_graph.planning.kept_plan import KeptPlan

if TYPE_CHECKING:
    from pathlib import Path

FACTORS = {"vllm": "0.30.0", "sizes": "[1, 2, 4]"}


def test_a_plan_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert KeptPlan(folder, FACTORS).find() is None

    KeptPlan(folder, FACTORS).keep(1234)

    assert KeptPlan(folder, dict(reversed(FACTORS.items()))).find() == 1234
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("name", ["vllm", "sizes", "another"])
def test_other_factors_have_another_plan(tmp_path: Path, name: str) -> None:
    KeptPlan(tmp_path, FACTORS).keep(1234)

    assert KeptPlan(tmp_path, {**FACTORS, name: "x"}).find() is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[: len(text) // 2], "Unterminated|Expecting"),
        (lambda _text: "\x00\xff", "Expecting value"),
        (lambda _text: "[1]", "expected an object of format 1"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "expected an object of format 1"),
        (lambda text: text.replace("0.30.0", "0.31.0"), "another model, version or set of sizes"),
        (lambda text: text.replace("1234", "-1"), "expected a number of bytes, found -1"),
        (lambda text: text.replace("1234", '"x"'), "expected a number of bytes, found 'x'"),
        (lambda text: text.replace("1234", "true"), "expected a number of bytes, found True"),
    ],
)
def test_a_wrong_file_is_logged_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: object, reason: str
) -> None:
    plan = KeptPlan(tmp_path, FACTORS)
    plan.keep(1234)
    assert callable(change)
    plan.path.write_text(change(plan.path.read_text()))

    with caplog.at_level(logging.WARNING):
        assert plan.find() is None

    (record,) = caplog.records
    assert str(plan.path) in record.getMessage()
    assert "measures again" in record.getMessage()
    assert re.search(reason, record.getMessage())
    plan.keep(5)
    assert json.loads(plan.path.read_text())["num_bytes"] == 5
    assert plan.find() == 5


def test_bytes_that_are_no_text_are_ignored(tmp_path: Path) -> None:
    plan = KeptPlan(tmp_path, FACTORS)
    plan.path.write_bytes(b"\xff\xfe\x00")

    assert plan.find() is None


def test_a_folder_that_cannot_be_made_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    plan = KeptPlan(tmp_path / "file" / "plans", FACTORS)

    plan.keep(1)

    assert plan.find() is None
    assert "set VLLM_CACHE_ROOT" in caplog.records[0].getMessage()
