"""The probes of decoding: one for each mode."""

from __future__ import annotations

from npu_graph_check.probe import Probe

DECODE = tuple(
    Probe(
        id=f"decode.{mode.replace('_', '-')}",
        title=f"A decoder with paged attention in mode `{mode}` is bitwise its eager run",
        run="npu_graph_check.probes.decode.small_decoder:decode",
        argument=mode,
        limit_s=240,
    )
    for mode in ("full", "piecewise", "full_decode_and_piecewise", "breakable", "measured")
)
