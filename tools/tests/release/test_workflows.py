"""The hosted workflows call sessions that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SESSION = re.compile(r"^@nox\.session.*?^def (?P<function>\w+)", re.DOTALL | re.MULTILINE)


def called_sessions(text: str) -> set[str]:
    """Return the sessions that a workflow names in its commands, matrices and selections."""
    named: set[str] = set()
    for line in text.splitlines():
        if "./nox -s" in line:
            options = line.partition("./nox -s")[2].partition(" -- ")[0]
            named |= {word.partition("(")[0] for word in re.findall(r'[^\s"]+', options)}
        if match := re.search(r"^\s+session: \[(.*)\]", line):
            named |= set(match[1].split(", "))
        named |= set(re.findall(r'\.name == "(\w+)"', line))
    return {name for name in named if not name.startswith("$")}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_calls_sessions_of_the_noxfile(workflow: Path) -> None:
    sessions = {found["function"] for found in SESSION.finditer((ROOT / "noxfile.py").read_text())}

    assert called_sessions(workflow.read_text()) <= sessions


def test_sessions_are_found_in_every_workflow() -> None:
    found = {path.stem: called_sessions(path.read_text()) for path in WORKFLOWS}

    assert {"lint", "tests", "changes", "integration"} <= found["ci"]
    assert {"compat", "build", "older_siblings", "releases_on_a_clone"} <= found["weekly"]
    assert found["release"] == {"build"}
