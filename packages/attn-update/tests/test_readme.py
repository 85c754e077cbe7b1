"""The example of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import cann_sim


def test_readme_example_on_simulated_cann_runs() -> None:
    cann_sim.activate()
    text = Path(__file__).parent.parent.joinpath("README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace: dict[str, object] = {}

    exec(compile(program, "README.md", "exec"), namespace)

    outputs = namespace["outputs"]
    assert isinstance(outputs, list)
    assert isinstance(outputs[3], torch.Tensor)
    assert outputs[3].abs().sum().item() > 0
