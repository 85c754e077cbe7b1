"""Runs the programs of the README with only the declared dependencies."""

from __future__ import annotations

import ast
import re
from importlib.metadata import requires
from pathlib import Path

import pytest
import torch

import cann_sim

PROGRAMS = re.findall(
    r"```python\n(.*?)```",
    Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=["updatable_graph", "recorder"])
def test_readme_program_on_simulated_cann_runs(program: str) -> None:
    cann_sim.activate()
    namespace: dict[str, object] = {}

    exec(compile(program, "README.md", "exec"), namespace)

    outputs = namespace["outputs"]
    assert isinstance(outputs, list)
    assert isinstance(outputs[3], torch.Tensor)
    assert outputs[3].abs().sum().item() > 0


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("program", PROGRAMS, ids=["updatable_graph", "recorder"])
def test_readme_program_imports_what_the_package_and_its_extra_declare(program: str) -> None:
    declared = {
        normal(re.split(r"[\[<>=~!; ]", requirement, maxsplit=1)[0])
        for requirement in requires("attn-update") or ()
    } | {"attn-update"}
    for statement in ast.parse(program).body:
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            modules = [statement.module or ""]
        else:
            continue
        for module in modules:
            # Modules of this repository, and torch, are named as their distributions.
            name = normal(module.partition(".")[0])
            assert name in declared, f"the README imports {module}, which nothing declares"
