"""How values are quantised to int8, on inputs that distinguish the ways."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HALVES = (0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 300.0, -300.0, math.inf, -math.inf)
_ROUNDED = (0, 2, 2, 0, -2, 126, 127, 127, -128, 127, -128)
_WIDTH = 32


def halves(look: Look) -> None:
    """Quantise halves and numbers out of range with a scale of 1."""
    for dtype in (torch.float16, torch.float32):
        for divides in (True, False):
            found = _quantised(look, list(_HALVES), dtype, divides=divides)
            way = "divided" if divides else "multiplied"
            look.expect(f"{dtype}, {way}", found[: len(_HALVES)], list(_ROUNDED))


def not_a_number(look: Look) -> None:
    """Quantise NaN."""
    for dtype in (torch.float16, torch.float32):
        found = _quantised(look, [math.nan, 1.0], dtype, divides=False)
        look.expect(f"{dtype}: NaN and 1", found[:2], [0, 1])


def dynamic(look: Look) -> None:
    """Quantise rows by their largest value: one of whole numbers up to 127, and one of zeros."""
    row = torch.arange(_WIDTH, dtype=torch.float16)
    row[-1] = 127
    values, scale = run(look, "npu_dynamic_quant", torch.stack([row, row * 0]))
    look.expect("values", _flat(values), [*map(int, row.tolist()), *[0] * _WIDTH])
    look.expect("scales", _flat(scale), [1.0, 0.0])


def _quantised(look: Look, values: list[float], dtype: torch.dtype, *, divides: bool) -> Any:
    given = torch.zeros(1, _WIDTH, dtype=dtype)
    given[0, : len(values)] = torch.tensor(values, dtype=dtype)
    scale = torch.ones(1, dtype=dtype if dtype is torch.float16 and not divides else torch.float32)
    options = (None, torch.qint8, 1 if divides else -1, divides)
    return _flat(run(look, "npu_quantize", given, scale, *options))


def _flat(tensor: torch.Tensor) -> list[Any]:
    return list(tensor.cpu().reshape(-1).tolist())
