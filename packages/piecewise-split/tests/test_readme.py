"""The README's example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def test_readme_example_runs_and_prints_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    printed = re.search(r"prints\n\n```text\n(.*?)  \.\.\.", text, re.DOTALL)
    assert example is not None
    assert printed is not None
    script = tmp_path / "readme_example.py"
    script.write_text(example[1], encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "readme_example"}

    exec(compile(example[1], str(script), "exec"), namespace)

    lines = capsys.readouterr().out.splitlines()
    shown = printed[1].splitlines()
    assert [line.split() for line in lines[: len(shown)]] == [line.split() for line in shown]
