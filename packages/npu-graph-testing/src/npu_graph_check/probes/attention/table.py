"""The probes of attention kinds: one for each updater, over every kind and case."""

from __future__ import annotations

from npu_graph_check.probe import Probe

# What the cases call: layouts, caches, masks, sinks, rotary parts and dtypes of each operator.
_FORMS = (
    *("fia-2", "fia-5", "fia-12", "fia-13", "fia-14", "fia-17", "fia-26", "fia-29"),
    *("sfa-1", "atb-1", "atb-4", "atb-5", "atb-6"),
)

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
        (
            "operators",
            ("update-5", "update-9", *_FORMS),
        ),
        ("kernels", ("updater-1", "updater-3", "updater-4", "fia-1", "call-1")),
        ("native", ("updater-1", "updater-3", "updater-4")),
    )
)
