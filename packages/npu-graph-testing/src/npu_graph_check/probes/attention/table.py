"""The probes of attention kinds: one for each updater, over every kind and case."""

from __future__ import annotations

from npu_graph_check.probe import Probe

ATTENTION = tuple(
    Probe(
        id=f"attention.{updater}",
        title=f"Every kind of attention, updated by `{updater}`, is bitwise the eager operator",
        run="npu_graph_check.probes.attention.every_case:every_case",
        argument=updater,
        rows=rows,
        limit_s=240,
    )
    for updater, rows in (
        ("operators", ("update-5", "update-9")),
        ("kernels", ("updater-1", "updater-3", "updater-4")),
        ("native", ("updater-1", "updater-3", "updater-4")),
    )
)
