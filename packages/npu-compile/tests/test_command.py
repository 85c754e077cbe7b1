from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from npu_compile.command_line.installation_check import check_installation
from npu_compile_command import run_command
from npu_graph_runtime.diagnosis import ERROR_CODES

if TYPE_CHECKING:
    from pathlib import Path


def test_config_shows_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", '{"mode": "full", "capture_sizes": [2, 1]}']) == 0

    shown = json.loads(capsys.readouterr().out)
    assert (shown["mode"], shown["capture_sizes"], shown["warmup_runs"]) == ("full", [1, 2], 1)


def test_config_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text('mode = "breakable"\n')

    assert run_command(["config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "breakable"


@pytest.mark.parametrize("text", ['{"modus": 1}', "absent.json"])
def test_config_that_is_wrong_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", text]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("npu-compile: reading the configuration")
    assert len(said.err.splitlines()) == 1


def test_doctor_names_each_problem_with_its_remedy() -> None:
    settings = {
        "TASK_QUEUE_ENABLE": "2",
        "PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:64, pin_memory_expandable_segments:True",
        "PATH": "",
    }

    checks = {check.name: check for check in check_installation(settings)}

    assert checks["torch"].ok
    for name in (*settings, "C++ compiler"):
        if name != "PATH":
            assert not checks[name].ok, name
            assert checks[name].remedy, name
    assert "PROBLEM TASK_QUEUE_ENABLE: 2\n" in str(checks["TASK_QUEUE_ENABLE"])


def test_doctor_without_problems_in_the_settings_says_ok() -> None:
    checks = {check.name: check for check in check_installation()}

    assert checks["packages"].ok
    assert checks["TASK_QUEUE_ENABLE"].ok
    assert str(checks["torch"]).startswith("ok      torch: 2.")


def test_command_is_installed_and_answers(tmp_path: Path) -> None:
    (entry,) = (
        each for each in entry_points(group="console_scripts") if each.name == "npu-compile"
    )
    program = f"import sys; sys.argv = ['npu-compile', 'doctor', '--json']; from {entry.module} "
    program += f"import {entry.attr}; {entry.attr}()"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    checks = json.loads(done.stdout)
    assert done.returncode == (0 if all(check["ok"] for check in checks) else 1)
    assert {"torch", "packages", "torch_npu", "TASK_QUEUE_ENABLE"} <= {
        check["name"] for check in checks
    }


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["explain", "--help"], ["absent"]]
)
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from npu_compile_command import run_command\n"
        "try: run_command(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert "npu-compile" in done.stdout + done.stderr


def test_example_of_the_help_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        run_command(["explain", "--help"])
    example = capsys.readouterr().out.partition("my_model.py:\n")[2]
    program, _, rest = example.partition("  npu-compile ")
    (tmp_path / "my_model.py").write_text(textwrap.dedent(program))
    monkeypatch.chdir(tmp_path)

    assert run_command(rest.partition("\n")[0].split()) == 0
    assert capsys.readouterr().out == "wrote explanation.html\n"


def test_error_says_what_a_code_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["error", "107027"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("107027 IllegalWhileCapturingError: ")
    assert ERROR_CODES[107027].remedy in said


def test_error_reads_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = """starting, size 507015
    RuntimeError: NPU function error: aclrtSynchronizeStream, error code is 507015
    [Error]: 507015
    EL0005: runtime result = 207008
    """
    monkeypatch.setattr("sys.stdin", io.StringIO(log))
    assert run_command(["error", "-", "--json"]) == 0

    found = [
        (each["code"], each["line"], each["times"]) for each in json.loads(capsys.readouterr().out)
    ]
    assert found == [(507015, 2, 2), (207008, 4, 1)]


@pytest.mark.parametrize("text", ["", "all is well", "1", "507015 tokens"])
def test_error_without_a_code_says_so(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["error", text]) == 1
    assert capsys.readouterr().err == "npu-compile: no error code of the device is in this text\n"
