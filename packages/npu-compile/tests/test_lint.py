"""The command that finds code of a model that a captured graph cannot repeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from npu_compile_command import run_command

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "from npu_compile_command import main; main()"
MODULE = """
import functools
import torch
from npu_graph_runtime import GraphContext, runs_eagerly

@functools.lru_cache
def workspace(n):
    return torch.zeros(n, device="npu")  # KEPT_MEMORY

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.steps = 0

    def forward(self, x):
        self.steps += 1  # CHANGED_STATE
        x = self.norm(x) + workspace(4)
        if x.sum() > 100:  # SCALAR_READ
            x = x - 1
        x = x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)  # COPY_FROM_HOST
        host = torch.empty(3, 4, pin_memory=True)
        host.copy_(x, non_blocking=True)  # COPY_TO_HOST
        print(x)  # COPY_TO_HOST
        torch.manual_seed(0)  # RANDOM_SEED
        x = x[x[:, 0] > -100]  # DATA_DEPENDENT_SHAPE
        return x

def bad(): return {"model": Model().eval(), "inputs": {"x": torch.ones(3, 4)}}

def wait(x):
    x = x * x.max().item()
    torch.accelerator.synchronize()
    return x

def waiting(): return {"model": wait, "inputs": {"x": torch.ones(3, 4)}}

class Clean(torch.nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, -x) + len(x)

def clean(): return {"model": Clean(), "inputs": {"x": torch.ones(3, 4)}}

def marked():
    context = GraphContext()
    attend = runs_eagerly(context)(lambda x: x * x.max().item())
    return {
        "model": lambda x: attend(x + 1) * 2, "inputs": {"x": torch.ones(3, 4)},
        "context": context, "config": {"mode": "breakable"},
    }
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that makes models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linted_models.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "linted_models", raising=False)
    return "linted_models"


def linted_alone(function: str) -> dict[str, Any]:
    """Lint in a process that has neither a device nor the simulator."""
    settings = {**os.environ, "PYTHONPATH": ""}
    settings.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    settings.pop("LD_LIBRARY_PATH", None)
    run = subprocess.run(
        [sys.executable, "-c", MAIN, "lint", f"linted_models:{function}", "--json"],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1, run.stderr
    linted: dict[str, Any] = json.loads(run.stdout[run.stdout.index("{\n") :])
    return linted


def test_each_line_is_named_without_a_device_and_without_the_simulator() -> None:
    linted = linted_alone("bad")

    assert linted["stopped"] is None
    expected = {
        (line.rpartition("# ")[2], number)
        for number, line in enumerate(MODULE.splitlines(), start=1)
        if "  # " in line
    }
    assert {(found["kind"], found["line"]) for found in linted["findings"]} == expected
    assert all(found["file"].endswith("linted_models.py") for found in linted["findings"])
    assert all(found["remedy"] for found in linted["findings"])
    assert [found["kind"] for found in linted["findings"] if found["is_of_first_call"]] == [
        "KEPT_MEMORY"
    ]


def test_model_that_needs_a_device_is_looked_at_as_far_as_it_came() -> None:
    linted = linted_alone("waiting")

    assert [found["kind"] for found in linted["findings"]] == ["SCALAR_READ", "WAIT"]
    assert "linted_models.py" in linted["stopped"]


def test_text_has_the_line_the_remedy_and_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lint", "linted_models:bad"]) == 1

    said = capsys.readouterr().out
    number = next(n for n, line in enumerate(MODULE.splitlines(), 1) if "# SCALAR_READ" in line)
    assert f"linted_models.py:{number} (module Model): aten._local_scalar_dense.default" in said
    assert "    keep the choice on the device (torch.where" in said
    assert "findings in two calls\n" in said


@pytest.mark.parametrize("function", ["clean", "marked"])
def test_no_finding_for_a_model_that_can_be_captured(
    capsys: pytest.CaptureFixture[str], function: str
) -> None:
    assert run_command(["lint", f"linted_models:{function}"]) == 0
    assert capsys.readouterr().out == "no findings in two calls\n"

    assert run_command(["lint", f"linted_models:{function}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"findings": [], "stopped": None}


def test_marked_function_counts_where_the_graph_does_not_break(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["lint", "linted_models:marked", "--config", '{"mode": "full"}']) == 1
    assert "1 finding in two calls" in capsys.readouterr().out


def test_missing_model_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lint", "linted_models:absent"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
