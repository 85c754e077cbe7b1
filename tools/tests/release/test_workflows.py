"""The hosted workflows call sessions that there are."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sessions.package import packages
from sessions.testing.long_tests import LONG_TESTS
from sessions.torch_release import releases

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SESSION = re.compile(r"^@nox\.session.*?^def (?P<function>\w+)", re.DOTALL | re.MULTILINE)


def called_sessions(text: str) -> set[str]:
    """Return the sessions that a workflow names in its commands, matrices and selections."""
    named: set[str] = set()
    for line in text.splitlines():
        if "./nox -s" in line:
            words = re.findall(r'[^\s"]+', line.partition("./nox -s")[2])
            sessions = itertools.takewhile(lambda word: word[0] not in "->", words)
            named |= {word.partition("(")[0] for word in sessions}
        if match := re.search(r"^\s+session: \[(.*)\]", line):
            named |= set(match[1].split(", "))
    return {name for name in named if not name.startswith("$")}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_calls_sessions_of_the_noxfile(workflow: Path) -> None:
    functions = {found["function"] for found in SESSION.finditer((ROOT / "noxfile.py").read_text())}
    sessions = functions | {tests.name for tests in LONG_TESTS}

    assert called_sessions(workflow.read_text()) <= sessions


def test_sessions_are_found_in_every_workflow() -> None:
    found = {path.stem: called_sessions(path.read_text()) for path in WORKFLOWS}

    assert {"lint", "tests", "changes", "integration"} <= found["ci"]
    assert {"compat", "build", "older_siblings", "releases_on_a_clone"} <= found["weekly"]
    assert found["release"] == {"build"}


def test_weekly_workflow_lists_every_release_and_every_package() -> None:
    text = (ROOT / ".github" / "workflows" / "weekly.yml").read_text()
    (options,) = re.findall(r"\./nox (.*--list --json) >", text)

    command = [sys.executable, "-m", "nox", *options.split()]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    sessions = {each["session"] for each in json.loads(listed.stdout)}
    wanted = {f"compat({release.name})" for release in releases()}
    assert sessions == wanted | {f"build({package.name})" for package in packages(ROOT)}
