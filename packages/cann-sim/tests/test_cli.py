"""The command `cann-sim`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cann_sim.cli import main

if TYPE_CHECKING:
    import pytest

COMMAND = (sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c")


def test_run_lets_an_unmodified_program_use_the_device(run_python: Any) -> None:
    done = run_python(
        "import torch; print((torch.ones(2).npu() * 3).cpu().tolist())",
        program=COMMAND,
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": None},
    )
    assert "[3.0, 3.0]" in done.output, done.errors


def test_run_gives_counters_to_the_program(run_python: Any) -> None:
    done = run_python(
        "import torch, torch_npu, cann_sim\n"
        "(torch.ones(2).npu() * 3).cpu()\n"
        "cann_sim.activate(); print(cann_sim.counters().launches)",
        program=COMMAND,
    )
    assert done.output.endswith("1\n"), done.errors


def test_run_returns_the_status_of_the_program(run_python: Any) -> None:
    assert run_python("raise SystemExit(5)", program=COMMAND).status == 5


def test_run_keeps_the_library_path_of_the_caller(run_python: Any) -> None:
    done = run_python(
        "import os; print(os.environ['LD_LIBRARY_PATH'])",
        program=COMMAND,
        environment={"LD_LIBRARY_PATH": "/somewhere/else"},
    )
    assert done.output.endswith(":/somewhere/else\n")


def test_run_of_an_unknown_program_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--", "no-such-program-here"]) == 127
    assert "cannot run 'no-such-program-here'" in capsys.readouterr().err


def test_run_without_a_program_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "cann-sim run -- pytest" in capsys.readouterr().err


def test_build_prints_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build"]) == 0
    assert "builds" in capsys.readouterr().out


def test_info_names_versions_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    output = capsys.readouterr().out
    assert "torch_npu:" in output
    assert "external events: value" in output
    assert ", built: " in output
    assert output.endswith("problems:        none\n")


def test_wrong_setting_is_an_error_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_SIM_EXTERNAL_EVENTS", "none")
    assert main(["ops"]) == 1
    assert "expected value or event, found 'none'" in capsys.readouterr().err
    assert main(["info"]) == 1
    assert "expected value or event, found 'none'" in capsys.readouterr().out
