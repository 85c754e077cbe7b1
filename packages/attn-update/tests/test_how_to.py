"""The programs of the how-to pages run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cann_sim
from attn_update import ArgumentError, StepParameterError

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


def run_page(name: str) -> dict[str, Any]:
    page = PAGES / name
    if not page.exists():
        pytest.skip("the documents of the repository are not here")
    cann_sim.activate()
    programs = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(programs), name, "exec"), namespace)
    return namespace


def test_how_to_program_on_simulated_cann_adds_a_kind_that_works() -> None:
    namespace = run_page("add-an-attention-kind.md")

    counters = namespace["lane"].counters
    assert (counters.steps, counters.updates) == (3, 12)
    before = cann_sim.counters().replays
    for lengths in ([1, 2, 3], [1, -1], [1, 65]):
        with pytest.raises(StepParameterError, match="checking group 'default'"):
            namespace["step"](lengths)
    assert cann_sim.counters().replays == before
    with pytest.raises(ArgumentError, match="block_table"):
        namespace["PagedDecode"]().check_arguments({})


def test_how_to_program_on_simulated_cann_makes_metadata_that_works() -> None:
    namespace = run_page("produce-metadata.md")

    assert namespace["outputs"][1].abs().sum().item() > 0
    before = cann_sim.counters().replays
    step = namespace["ProducerStep"](
        key="decode-2", needs={"lengths": {"longest": 65}, "indexer": {}}, values=None
    )
    with pytest.raises(StepParameterError, match="'longest' is too small"):
        namespace["lane"].run(step, namespace["graph"].replay)
    assert cann_sim.counters().replays == before
