"""Ten model shapes on the real torch_npu on cann-sim: the forecast equals actual use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def capture_planned_shapes() -> list[dict[str, Any]]:
    """The output of `planned_shapes.py`: kernels do nothing there, so shapes may be real ones."""
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


def test_ten_shapes_use_what_is_forecast_within_the_budget_and_are_captured_once() -> None:
    """One test, since the shapes are captured in one process that takes seconds to start."""
    shapes = capture_planned_shapes()

    assert len(shapes) == 2 * 10
    for shape in shapes:
        plan = shape["plan"]
        limits = (2048, 256 * 2**30)
        for kind in range(2):
            forecast, used = shape["forecast"][kind], shape["used"][kind]
            budget = shape["budget"][kind]
            assert forecast == pytest.approx(used, rel=0.05), plan
            assert used <= (limits[kind] if budget is None else budget), plan
        has_budget = shape["budget"] != [None, None]
        assert (shape["kept"] != shape["sizes"]) == has_budget, plan
        # Counted by whom it was asked, and by the device: none twice, none released.
        assert sorted(shape["captures"]) == shape["kept"], plan
        assert shape["device_captures"] == shape["graphs"], plan
