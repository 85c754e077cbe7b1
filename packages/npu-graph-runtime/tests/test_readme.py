"""The examples of the README run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_readme_has_an_example_for_each_device() -> None:
    assert ["FakeDevice()" in EXAMPLES[0], "NpuDevice(0)" in EXAMPLES[2]] == [True, True]


def test_readme_example_on_fake_device_prints_replayed_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert "tensor([2., 4., 6.])" in capsys.readouterr().out


def test_readme_example_on_npu_prints_a_line_a_step(
    npu: NpuDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(EXAMPLES[2], "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert lines[0].split()[1] == "0.0"
    first, second = (float(line.split()[1]) for line in lines[1:])
    assert second == pytest.approx(2 * first, rel=0.01)


def test_readme_example_of_one_line_replays(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(EXAMPLES[1], "README.md", "exec", dont_inherit=True), {})
    out = capsys.readouterr().out
    assert "Graphed('step', 2 of at most 8 graphs)" in out
    assert "captured=2, replayed=2" in out
