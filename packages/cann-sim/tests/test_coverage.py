"""The operators that a program requested."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from cann_sim import MissingOperator, read_coverage
from cann_sim.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ACTIVATE = "import cann_sim; cann_sim.activate()\nimport torch, torch_npu\n"
USE = """
value = torch.ones(2, dtype=torch.bfloat16).npu()
(value + value).cpu()
(value + torch.ones(2).npu()).cpu()
try:
    torch.linalg.cholesky_ex(torch.eye(2).npu())
except (RuntimeError, NotImplementedError):
    pass
try:
    torch_npu.npu_fused_linear_online_max_sum(*[torch.ones(4, 8).npu()] * 3, 0, 1)
    torch.npu.synchronize()
except RuntimeError:
    pass
try:
    torch_npu.npu_rms_norm(torch.ones(2, 8).npu(), torch.ones(8, dtype=torch.int32).npu())
    torch.npu.synchronize()
except RuntimeError:
    pass
"""
MISSING = MissingOperator(
    operator="aclnnFusedLinearOnlineMaxSum",
    asked_by="npu::npu_fused_linear_online_max_sum",
)

uses_the_missing_operator = pytest.mark.absent_in_torch_npu(
    "2.10", reason="no operator npu_fused_linear_online_max_sum"
)


@uses_the_missing_operator
def test_coverage_counts_launches_by_operator_and_dtypes(run_python: Any) -> None:
    done = run_python(f"{ACTIVATE}{USE}print(dict(cann_sim.coverage().launches['aclnnAdd']))")
    assert "{'bfloat16': 1, 'float32 bfloat16': 1}" in done.output, done.errors


@uses_the_missing_operator
def test_coverage_names_what_is_missing_and_refused_with_the_torch_operator(
    run_python: Any,
) -> None:
    done = run_python(f"{ACTIVATE}{USE}print(cann_sim.coverage().report())")
    expected = "aclnnFusedLinearOnlineMaxSum, needed by npu::npu_fused_linear_online_max_sum"
    assert expected in done.output, done.errors
    assert "1 refused calls" in done.output
    assert "aclnnRmsNorm, called by npu::npu_rms_norm: argument 'gamma'" in done.output


@uses_the_missing_operator
def test_coverage_file_has_the_operators_of_all_processes(run_python: Any, tmp_path: Path) -> None:
    file = tmp_path / "coverage.jsonl"
    for _ in range(2):
        done = run_python(f"{ACTIVATE}{USE}", environment={"CANN_SIM_COVERAGE": str(file)})
        assert done.status == 0, done.errors
    found = read_coverage(file)
    assert sum(found.launches["aclnnAdd"].values()) == 4
    assert found.missing[MISSING] == 2


def test_coverage_file_of_a_killed_process_is_complete(run_python: Any, tmp_path: Path) -> None:
    file = tmp_path / "coverage.jsonl"
    ends = """
import ctypes, os, signal
values = torch.ones(2).npu()
for _ in range(12):
    values.add_(1.0)
torch.npu.synchronize()
asked = cann_sim.coverage().launches["aclnnInplaceAdds"]
if os.fork() == 0:
    os._exit(0)
os.wait()
print(sum(asked.values()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_python(ACTIVATE + ends, environment={"CANN_SIM_COVERAGE": str(file)})
    assert done.status == -9
    assert done.output.splitlines()[-1] == "12", done.errors
    assert sum(read_coverage(file).launches["aclnnInplaceAdds"].values()) == 12


@uses_the_missing_operator
def test_run_with_coverage_shows_it_and_keeps_the_status(run_python: Any, tmp_path: Path) -> None:
    file = tmp_path / "coverage.jsonl"
    file.write_text("from an earlier run\n")
    command = (sys.executable, "-m", "cann_sim", "run", f"--coverage={file}", "--")
    done = run_python(
        f"import torch\nimport torch_npu\n{USE}\nraise SystemExit(5)",
        program=(*command, sys.executable, "-c"),
    )
    assert done.status == 5, done.errors
    assert "1 calls of operators that are not simulated" in done.errors
    assert read_coverage(file).missing == {MISSING: 1}


def test_coverage_command_shows_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "coverage.jsonl"
    file.write_text('{"launches": [["aclnnAdd", "", 3]], "refused": [], "missing": []}\n')
    assert main(["coverage", str(file)]) == 0
    assert "3 launches of 1 operators\n        3 aclnnAdd: no tensors 3" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["no JSON\n", "{}\n", "[1]\n"])
def test_coverage_of_another_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "other"
    file.write_text(text)
    assert main(["coverage", str(file)]) == 1
    assert "give a file that CANN_SIM_COVERAGE named" in capsys.readouterr().err


def test_coverage_without_the_simulator_is_refused(run_python: Any) -> None:
    done = run_python("import cann_sim; cann_sim.coverage()")
    assert "InactiveError" in done.errors
