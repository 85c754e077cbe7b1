"""The program of docs/how-to/add-a-pass.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import fx_passes

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-pass.md"


def test_how_to_program_on_simulated_cann_adds_a_rule_that_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not PAGE.exists():
        pytest.skip("the documents of the repository are not here")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, object] = {"__name__": "add_a_pass"}

    exec(compile("\n".join(programs), PAGE.name, "exec"), namespace)

    output = capsys.readouterr().out
    assert "aten.sigmoid.default" in output
    assert "raise_fast_gelu: 1 matched, 0 near misses" in output
    assert output.splitlines()[-1] == "npu:0"
    extended = namespace["extended"]
    assert isinstance(extended, fx_passes.Pipeline)
    assert extended.names()[:3] == ["normalize", "activations", "raise_fast_gelu"]
    assert isinstance(namespace["result"], torch.Tensor)
