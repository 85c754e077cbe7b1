"""How torch operators round, accumulate and break ties, on inputs that distinguish the ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

# Whole numbers that the dtype holds stop being neighbours at these.
_SPARSE_FROM = ((torch.bfloat16, 256), (torch.float16, 2048))


def rounding(look: Look) -> None:
    """Add 1 to numbers above which only every second integer can be represented."""
    for dtype, first in _SPARSE_FROM:
        values = torch.tensor([first, first + 2, -first, -first - 2], dtype=dtype).to(look.on)
        steps = torch.tensor([1, 1, -1, -1], dtype=dtype).to(look.on)
        # Ties go to the even neighbour: one down, one up.
        even = [first, first + 4, -first, -first - 4]
        look.expect(f"{dtype}: ties of sums", _values(values + steps), even)
        look.expect(f"{dtype}: ties of differences", _values(values - -steps), even)


def products(look: Look) -> None:
    """Add more ones in a product than the dtype could count."""
    for dtype, first in _SPARSE_FROM:
        count = 4 * first
        row = torch.ones(1, count, dtype=dtype).to(look.on)
        column = torch.ones(count, 1, dtype=dtype).to(look.on)
        for name, product in (
            ("mm", row @ column),
            ("linear", torch.nn.functional.linear(row, column.T)),
            ("bmm", torch.bmm(row[None], column[None])[0]),
        ):
            look.expect(f"{dtype}: {name} of {count} ones", _values(product), [count])


def scaled_products(look: Look) -> None:
    """Add to a product that the dtype cannot represent; the sum can be, if rounded once."""
    for dtype, first in _SPARSE_FROM:
        count = first + 1
        shapes = ((1, 1), (1, count), (count, 1))
        given = [torch.ones(shape, dtype=dtype) for shape in shapes]
        batched = [each[None] for each in given]
        for name, operands in (("addmm", given), ("baddbmm", batched)):
            seen = run(look, getattr(torch, name), *operands)
            look.expect(f"{dtype}: {name} of 1 and {count} ones", _values(seen), [first + 2])


def sums(look: Look) -> None:
    """Sum more ones than the dtype could count."""
    for dtype, first in _SPARSE_FROM:
        ones = torch.ones(4 * first, dtype=dtype).to(look.on)
        look.expect(f"{dtype}: sum", _values(ones.sum()), [4 * first])
        look.expect(f"{dtype}: mean", _values(ones.mean()), [1])
        look.expect(f"{dtype}: mean of rows", _values(ones.view(4, -1).mean(1)), [1] * 4)


def ties(look: Look) -> None:
    """Ask which of equal values is the largest."""
    values = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0]).to(look.on)
    look.expect("argmax", int(values.argmax().cpu()), 1)
    look.expect("argmin", int((-values).argmin().cpu()), 1)
    look.expect("max of a dimension", int(values.max(dim=0).indices.cpu()), 1)
    found = values.topk(3)
    look.expect("values of topk", _values(found.values), [3, 3, 3])
    look.expect("places of topk", sorted(_values(found.indices)), [1, 2, 4])
    ordered = values.sort(stable=True)
    look.expect("stable sort", _values(ordered.indices), [0, 3, 1, 2, 4])


def _values(tensor: torch.Tensor) -> list[Any]:
    return tensor.cpu().double().reshape(-1).tolist()
