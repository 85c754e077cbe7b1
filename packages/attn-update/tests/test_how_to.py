"""Runs the program of docs/how-to/add-an-attention-kind.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cann_sim
from attn_update import ArgumentError, StepParameterError

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "add-an-attention-kind.md"


def test_how_to_program_on_simulated_cann_adds_a_kind_that_works() -> None:
    if not PAGE.exists():
        pytest.skip("the documents of the repository are not here")
    cann_sim.activate()
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    namespace: dict[str, Any] = {}

    exec(compile("\n".join(programs), PAGE.name, "exec"), namespace)

    counters = namespace["lane"].counters
    assert (counters.steps, counters.updates) == (3, 12)
    before = cann_sim.counters().replays
    for lengths in ([1, 2, 3], [1, -1], [1, 65]):
        with pytest.raises(StepParameterError, match="checking group 'default'"):
            namespace["step"](lengths)
    assert cann_sim.counters().replays == before
    with pytest.raises(ArgumentError, match="block_table"):
        namespace["PagedDecode"]().check_arguments({})
