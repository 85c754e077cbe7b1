from __future__ import annotations

from npu_graph_runtime import RunMode


def test_run_mode_has_four_values() -> None:
    assert [mode.value for mode in RunMode] == ["eager", "piecewise", "breakable", "full"]
