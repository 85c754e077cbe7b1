"""The memory left to graphs and its comparison with what was taken, on simulated CANN."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from npu_graph_runtime import NpuDevice
from vllm_npu_graph.planning.graph_budget import GraphBudget
from vllm_npu_graph.planning.kept_plan import KeptPlan

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20


def open_budget(folder: Path, *, others_agree: bool = True) -> GraphBudget:
    cann_sim.activate()
    kept = KeptPlan(folder, {"model": "x"})
    return GraphBudget(NpuDevice(0), kept, lambda own: own and others_agree)


def allocate(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.int8, device="npu:0")


def never() -> int:
    pytest.fail("measured although there is a plan")


def start(budget: GraphBudget, *, cache: int, taken: int) -> None:
    """Take memory as an engine does, whose cache and graphs have so many MiB."""
    kept = [allocate(cache), allocate(taken)]
    budget.conclude(cache * MIB)
    del kept


def test_a_second_start_finds_what_the_first_took(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_budget(tmp_path)
    with caplog.at_level(logging.INFO, "vllm.npu_graph"):
        assert first.plan(lambda: 30 * MIB) == 30 * MIB
        start(first, cache=100, taken=40)
    assert first.is_measured
    assert first.planned_free == first.free_before - 130 * MIB
    # torch_npu requests a few bytes more than a tensor has, in segments of 2 MiB.
    assert first.free_after == pytest.approx(first.free_before - 140 * MIB, abs=4 * MIB)
    leaves, compared = [record.getMessage() for record in caplog.records]
    assert "leaves 30.0 MiB to graphs, measured by trial captures" in leaves
    assert "planned 30.0 MiB for graphs, they took 4" in compared

    second = open_budget(tmp_path)
    assert second.plan(never) == pytest.approx(40 * MIB, abs=4 * MIB)
    assert not second.is_measured


def test_a_plan_that_is_off_is_logged_as_a_warning_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    KeptPlan(tmp_path, {"model": "x"}).keep(4 * MIB)
    budget = open_budget(tmp_path)
    planned = budget.plan(never)
    start(budget, cache=100, taken=1000)

    assert planned == 4 * MIB
    assert caplog.records[-1].levelno == logging.WARNING
    found = KeptPlan(tmp_path, {"model": "x"}).find()
    assert found == pytest.approx(1000 * MIB, abs=4 * MIB)


def test_ranks_measure_together(tmp_path: Path) -> None:
    KeptPlan(tmp_path, {"model": "x"}).keep(4 * MIB)
    budget = open_budget(tmp_path, others_agree=False)

    assert budget.plan(lambda: 7 * MIB) == 7 * MIB
    assert budget.is_measured
