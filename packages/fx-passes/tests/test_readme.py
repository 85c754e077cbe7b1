"""The example of the README runs and prints the output shown there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_readme_example_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None

    exec(compile(example[1], "README.md", "exec"), {"__name__": "readme"})

    output = capsys.readouterr().out
    assert "relu_add: 1 matched, 1 near misses" in output
    assert "alpha is 2" in output
    assert "tensor([6., 6., 6.])" in output
