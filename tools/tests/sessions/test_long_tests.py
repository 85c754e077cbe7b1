"""Sessions that run the gate's tests with larger numbers: a row of a table each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import PurePath

import pytest

from sessions.testing.long_tests import LONG_TESTS, LongTests
from sessions.workspace import ROOT


@pytest.mark.parametrize("row", LONG_TESTS, ids=lambda row: row.name)
def test_row_names_existing_tests_and_options(row: LongTests) -> None:
    for run in row.runs:
        words = run.split()
        paths = [word for word in words if "/" in word]
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert all((ROOT / path).exists() for path in paths)
        (folder,) = {ROOT.joinpath(*PurePath(path).parts[:2]) for path in paths[:1]}
        files = [*folder.rglob("conftest.py"), *(ROOT / "integration-tests").glob("conftest.py")]
        declared = "".join(path.read_text() for path in files)
        assert {option for option in options if f'"{option}"' not in declared} == set()


def test_each_row_is_a_session_outside_the_gate() -> None:
    command = [sys.executable, "-m", "nox", "-t", "long", "--list", "--json"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    sessions = {each["session"]: each["description"] for each in json.loads(listed.stdout)}
    assert sessions == {row.name: row.about for row in LONG_TESTS}
