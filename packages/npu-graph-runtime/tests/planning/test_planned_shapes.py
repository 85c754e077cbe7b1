"""Ten model shapes on the real torch_npu over cann-sim: what is forecast is what is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def shapes() -> list[dict[str, Any]]:
    """What `planned_shapes.py` prints: kernels do nothing there, so shapes may be real ones."""
    variables = {
        "CANN_SIM_KERNELS": "null",
        "CANN_SIM_MEMORY_GB": "256",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("planned_shapes.py"))],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])
    return found


def test_ten_shapes_are_planned(shapes: list[dict[str, Any]]) -> None:
    assert len(shapes) == 10


@pytest.mark.parametrize("index", range(10))
def test_forecast_behind_two_sizes_is_within_five_percent_of_what_is_used(
    shapes: list[dict[str, Any]], index: int
) -> None:
    shape = shapes[index]
    for forecast, used in zip(shape["forecast"], shape["used"], strict=True):
        assert forecast == pytest.approx(used, rel=0.05), shape["plan"]


@pytest.mark.parametrize("index", range(10))
def test_each_size_is_captured_once_and_none_is_released(
    shapes: list[dict[str, Any]], index: int
) -> None:
    shape = shapes[index]
    assert sorted(shape["captures"]) == shape["kept"]
    assert shape["device_captures"] == shape["graphs"]


@pytest.mark.parametrize("index", range(10))
def test_what_is_used_is_within_the_budget(shapes: list[dict[str, Any]], index: int) -> None:
    shape = shapes[index]
    limits = (2048, 256 * 2**30)
    for limit, device, used in zip(shape["budget"], limits, shape["used"], strict=True):
        assert used <= (device if limit is None else limit)
    all_kept = shape["kept"] == shape["sizes"]
    assert all_kept == (shape["budget"] == [None, None])
