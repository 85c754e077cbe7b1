from __future__ import annotations

from npu_graph_runtime import RunMode


def test_run_mode_has_three_values() -> None:
    assert [mode.value for mode in RunMode] == ["eager", "piecewise", "full"]
