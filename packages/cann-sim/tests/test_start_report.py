"""Output of `cann-sim info` if the simulator would not start."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from cann_sim.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )


@pytest.mark.parametrize("package", ["torch", "torch_npu"])
def test_info_without_a_package_names_it_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    without(monkeypatch, package)
    assert main(["info"]) == 1
    output = capsys.readouterr().out
    assert f"cann-sim looked for {package}: expected it to be installed, found nothing" in output
    assert "torch:           see problems" in output


def test_info_without_a_compiler_and_without_a_build_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert main(["info"]) == 1
    assert "expected the C++ compiler 'g++' on the path, found none" in capsys.readouterr().out


def test_info_before_a_build_that_can_be_made_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path))
    assert main(["info"]) == 0
    output = capsys.readouterr().out
    assert f"{tmp_path}, to be built" in output
    assert output.endswith("problems:        none\n")


def test_info_names_all_problems_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CANN_SIM_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("CANN_SIM_KERNELS", "nul")
    assert main(["info"]) == 1
    output = capsys.readouterr().out
    assert "CANN_SIM_KERNELS: expected real or null, found 'nul'" in output
    assert "cann-sim was opening its folder of built files" in output
