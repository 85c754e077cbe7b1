"""The output, pictures and files of the commands that run a model, on the fake device."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from npu_compile.command_line.traced_steps import main as run_traced_steps
from npu_compile_command import run_command

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
import torch
from npu_compile import CompileConfig
from npu_graph_runtime import FakeDevice, GraphContext, runs_eagerly

def add_twice(x, y): return torch.tanh(x * 2 + 1) + y.sum(-1, keepdim=True)

def fields():
    return {
        "model": add_twice,
        "inputs": {"x": torch.ones(3, 4), "y": torch.ones(3, 2)},
        "config": {"mode": "full", "capture_sizes": [1, 2, 4, 8]},
        "dynamic_arg_dims": {"x": (0,), "y": (0,)},
    }

def good(): return {**fields(), "device": FakeDevice()}

def with_prefill():
    config = CompileConfig(
        mode="breakable", fuse=False, capture_sizes=(2, 4), prefill_capture_sizes=(8, 16)
    )
    context, told = GraphContext(), []
    attend = runs_eagerly(context)(lambda x: x.add_(1.0))
    def model(x, y): return attend(torch.tanh(x * 2)) + y.sum(-1, keepdim=True)
    prefill = {
        "max_sequences": 2,
        "set_lengths": told.append,
        "lengths": lambda rows, sequences: {"rows": {}},
    }
    return {
        **good(), "model": model, "config": config, "context": context, "prefill": prefill,
    }

def without_recorder(): return {**good(), "decode": {"lengths": lambda rows, step: {}}}

def no_rows(): return {**good(), "inputs": {"x": torch.ones(3, 4), "y": 1}}
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that makes models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "command_models.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "command_models", raising=False)
    return "command_models"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command that must succeed, and return its JSON output."""
    assert run_command([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_plan_lists_what_fits_a_budget_and_why_the_rest_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    planned = run(capsys, "plan", "command_models:good", "--streams", "3")

    assert list(planned) == ["decode"]
    assert planned["decode"]["sizes"] == [1, 2, 8]
    assert set(planned["decode"]["captured"]) == {"1", "2", "8"}
    (reason,) = planned["decode"]["dropped"].values()
    assert reason.startswith("it would take about 1 streams")
    assert planned["decode"]["used"]["streams"] == 3
    assert planned["decode"]["used"]["num_bytes"] > 0


def test_plan_shares_the_budget_between_prefill_and_decode(
    capsys: pytest.CaptureFixture[str],
) -> None:
    planned = run(capsys, "plan", "command_models:with_prefill", "--streams", "6", "--memory", "1G")

    assert planned["prefill"]["sizes"] == [8, 16]
    assert planned["decode"]["sizes"] == [4]
    assert planned["decode"]["budget"]["streams"] == 2


def test_plan_says_how_far_it_is_unless_it_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "command_models:good", "--sizes", "2,4"]) == 0
    told = capsys.readouterr()
    assert "capture sizes: 2 of 2 (2, 4)" in told.out
    assert "npu-compile: captured size 4, 1 of 2\n" in told.err
    assert "npu-compile: forecast of 2 sizes: 2 streams" in told.err

    assert run_command(["plan", "command_models:good", "--quiet"]) == 0
    assert not capsys.readouterr().err


def test_bench_times_each_mode_and_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [tmp_path / "times.svg", tmp_path / "times.png"]
    plots = [part for path in pictures for part in ("--plot", str(path))]
    timed = run(capsys, "bench", "command_models:with_prefill", "--steps", "4", "--quiet", *plots)

    assert [each["mode"] for each in timed] == ["eager", "breakable", "full"]
    assert all(len(each["step_us"]) == 4 and min(each["step_us"]) > 0 for each in timed)
    assert timed[0]["eager_over_this"] == 1.0
    # Three rows, with three steps that warm up.
    assert timed[2]["statistics"] == {
        "what": "decode",
        "sizes": [{"size": 4, "run_mode": "full", "num_steps": 7, "num_exact": 0, "num_rows": 21}],
        "eager": {},
    }
    text = pictures[0].read_text()
    assert "x faster than eager)" in text
    assert ">breakable</text>" in text
    assert f">{timed[0]['median_us']:.0f} us</text>" in text
    assert pictures[1].read_bytes().startswith(b"\x89PNG")


def test_bench_prints_a_table_of_the_requested_modes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        run_command(["bench", "command_models:with_prefill", "--modes", "breakable", "--steps=1"])
        == 0
    )

    told = capsys.readouterr()
    heading, row, _, *statistics = told.out.splitlines()
    assert heading.split()[:2] == ["mode", "us/step"]
    assert row.split()[0] == "breakable"
    assert statistics[0] == "mode breakable, decode steps: 4"
    assert statistics[-1].split() == ["4", "breakable", "4", "0", "25.0%"]
    assert "breakable: captured size 4, 1 of 2" in told.err


def test_trace_without_a_trace_of_the_device_has_what_the_host_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, picture = tmp_path / "steps.json", tmp_path / "steps.svg"
    arguments = ["--steps", "2", "--output", str(output), "--plot", str(picture), "--quiet"]
    told = run(capsys, "trace", "command_models:with_prefill", *arguments)

    assert told == {"replays": 0, "kernels": 0, "updates": 0, "updates_in_time": 0}
    events = json.loads(output.read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("step of 3 rows, padded to 4") == 5  # three warm up
    assert names.count("<lambda>") == names.count("segment 2 (behind <lambda>)") == 5
    assert {"device memory (MiB)", "replay model"} <= {event["name"] for event in events}
    assert ">host</text>" in picture.read_text()
    assert ">between two segments</text>" in picture.read_text()
    assert "simulated" not in picture.read_text()


def test_trace_of_a_device_with_virtual_times_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_SIM_CLOCK", "given")
    assert run_command(["trace", "command_models:good", "--quiet"]) == 1
    assert "found CANN_SIM_CLOCK, with which the device's times are" in capsys.readouterr().err


def test_trace_of_a_model_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="expected that each input is a tensor of at least one"):
        run_traced_steps(["command_models:no_rows", "", "1", str(tmp_path / "out"), "--quiet"])

    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert run_command(["trace", "command_models:no_rows", "--quiet"]) == 1
    assert "the process that ran it ended with status 1" in capsys.readouterr().err
    assert not (tmp_path / "trace.json").exists()


def test_explain_draws_the_operators_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "fusions.svg"
    told = run(capsys, "explain", "command_models:good", "--plot", str(picture))

    text = picture.read_text()
    assert f">before fusion: {told['launches']['before']} launches</text>" in text
    assert text.count(">aten::tanh</text>") == 2
    assert picture.read_bytes() == redrawn(capsys, picture)


def redrawn(capsys: pytest.CaptureFixture[str], picture: Path) -> bytes:
    run(capsys, "explain", "command_models:good", "--plot", str(picture))
    return picture.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "good", "--config", "{}"], "mode 'eager' with 0 capture sizes captures nothing"),
        (["plan", "good", "--memory", "1"], "capture_budget holds none of the capture sizes"),
        (["plan", "no_rows"], "expected that each input is a tensor of at least one dimension"),
        (
            ["bench", "without_recorder", "--modes", "full"],
            "a recorder and a lane are needed",
        ),
        (["bench", "good", "--modes", "piecewise"], "needs splitting_ops"),
        (["bench", "good", "--modes", "full,full_decode_and_piecewise"], "one of them at a time"),
        (["bench", "good", "--modes", "fast"], "reading --modes: expected some of eager, full"),
        (["explain", "good", "--plot", "picture.pdf"], "ends in .svg or .png"),
        (["explain", "good", "--plot", "absent/picture.png"], "there is no folder 'absent'"),
        (["explain", "good", "--plot", "p.svg", "--config", '{"fuse": false}'], "says fuse=False"),
        (["trace", "good", "--output", "absent/t"], "writing 'absent/t': there is no folder"),
    ],
)
def test_what_cannot_be_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, function, *rest = arguments

    assert run_command([command, f"command_models:{function}", *rest]) == 1

    error = [line for line in capsys.readouterr().err.splitlines() if "captured size" not in line]
    assert any(line.startswith("npu-compile: ") and said in line for line in error), error


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["plan", "m:f", "--memory", "2X"], "expected bytes, such as 512M or 2G"),
        (["plan", "m:f", "--sizes", "1,a"], "expected a whole number of at least 1"),
        (["plan", "m:f", "--streams", "0"], "expected a whole number of at least 1"),
    ],
)
def test_option_that_cannot_be_is_refused(
    option: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_command(option)

    assert said in capsys.readouterr().err


def test_picture_without_matplotlib_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert run_command(["explain", "command_models:good", "--plot", "picture.svg"]) == 1

    assert "pip install 'matplotlib>=3.9'" in capsys.readouterr().err
