"""The probes of decoding: one for each mode."""

from __future__ import annotations

from npu_graph_check.probe import NPU_AND_CUDA, Probe

_PACKAGE = "npu_graph_check.probes.decode"

_UPDATED = tuple(
    Probe(
        id=f"decode.{mode.replace('_', '-')}",
        title=f"A decoder with paged attention in mode `{mode}` is bitwise its eager run",
        run=f"{_PACKAGE}.small_decoder:decode",
        argument=mode,
        limit_s=240,
    )
    for mode in ("full", "piecewise", "full_decode_and_piecewise", "breakable", "measured")
)
_PLAIN = tuple(
    Probe(
        id=f"decode.plain-{mode}",
        title=f"A decoder in plain torch in mode `{mode}`, without updates, is bitwise eager",
        run=f"{_PACKAGE}.plain_decoder:decode",
        argument=mode,
        limit_s=240,
        devices=NPU_AND_CUDA,
    )
    for mode in ("piecewise", "breakable")
)
DECODE = (*_UPDATED, *_PLAIN)
