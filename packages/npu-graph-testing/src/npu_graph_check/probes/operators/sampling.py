"""Random numbers: their grid, their bounds, and draws without replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import expect_equal, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_COUNT = 1 << 16


def uniform(look: Look) -> None:
    """Draw uniform values: multiples of 2^-24 below 1, the upper end never."""
    _seed(look)
    values = torch.empty(_COUNT, device=look.on).uniform_(0, 1).cpu().double()
    grid = values * 2**24
    look.expect("values that are no multiples of 2^-24", int((grid != grid.round()).sum()), 0)
    look.expect("values below 0, or 1 and above", int(((values < 0) | (values >= 1)).sum()), 0)
    # In bfloat16 one in 512 draws would round to the upper end.
    halves = torch.empty(_COUNT, device=look.on, dtype=torch.bfloat16).uniform_(0, 1).cpu()
    look.expect("values of bfloat16 that are 1", int((halves == 1).sum()), 0)
    look.expect("values of bfloat16 that are 0", bool((halves == 0).sum() > _COUNT / 1024), True)


def without_replacement(look: Look) -> None:
    """Draw two of three without replacement, and count which comes first."""
    _seed(look)
    weights = torch.tensor([1.0, 2.0, 5.0]).expand(_COUNT, 3).contiguous()
    drawn = run(look, torch.multinomial, weights, 2).cpu()
    look.expect("rows that draw one twice", int((drawn[:, 0] == drawn[:, 1]).sum()), 0)
    # Five deviations of a share of so many draws.
    for place, share in enumerate((1 / 8, 2 / 8, 5 / 8)):
        seen = float((drawn[:, 0] == place).double().mean())
        near = abs(seen - share) < 5 * (share * (1 - share) / _COUNT) ** 0.5
        look.expect(f"share of {place} among the first draws is {share}", near, True)
    behind = drawn[drawn[:, 0] == 2][:, 1]
    seen = float((behind == 1).double().mean())
    look.expect("share of 1 behind 2 is 2/3", abs(seen - 2 / 3) < 0.02, True)


def top_k_top_p(look: Look) -> None:
    """Cut rows by k, by p, by both and by neither."""
    row = torch.tensor([1.0, 4.0, 2.0, 4.0, 3.0, 0.0, -1.0, -2.0])
    logits, p = row.expand(4, -1).contiguous(), torch.tensor([1.0, 0.1, 0.5, 1.0])
    k = torch.tensor([2, 3, 0, 0], dtype=torch.int32)
    chosen, kept = run(look, "npu_top_k_top_p_sample", logits, k, p, is_need_logits=True)
    look.expect("the first of two equal ones is chosen", chosen.cpu().tolist(), [1, 1, 1, 1])
    expected = torch.full((4, 8), -float("inf"))
    for number, places in enumerate(([1, 3], [1], [1, 3], list(range(8)))):
        expected[number, places] = row[places]
    expect_equal(look, "what is left of each row", kept, expected)


def _seed(look: Look) -> None:
    look.opened.synchronize()
    npu: Any = vars(torch)["npu"]
    npu.manual_seed(1234)
