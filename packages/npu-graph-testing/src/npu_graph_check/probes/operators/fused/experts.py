"""The choice of experts, the way to their rows and back, and grouped products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import (
    HALVES,
    drawn,
    expect_close,
    expect_equal,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def gating_ties(look: Look) -> None:
    """Choose among equal experts, and for a row that is finished."""
    for what, finished, expected in (
        ("among equals", None, [[0, 1, 2]] * 2),
        ("with a finished row", torch.tensor([False, True]), [[0, 1, 2], [8, 8, 8]]),
    ):
        operator = "npu_moe_gating_top_k_softmax"
        _, chosen, _ = run(look, operator, torch.zeros(2, 8), finished, 3)
        look.expect(what, chosen.cpu().tolist(), expected)


def gating_weights(look: Look) -> None:
    """Compare the weights of sigmoids, and of softmax with and without their sum."""
    x = torch.linspace(-3, 3, 16).flip(0).view(1, -1)
    for norm, renorm in ((1, 0), (0, 0), (0, 1)):
        options = {"norm_type": norm, "renorm": renorm}
        weights, chosen, _ = run(look, "npu_moe_gating_top_k", x, 4, **options)
        normal = x.double().sigmoid() if norm else x.double().softmax(-1)
        expected = normal[:, :4]
        if norm or renorm:
            expected = expected / expected.sum(-1, keepdim=True)
        name = f"norm_type {norm}, renorm {renorm}"
        look.expect(f"experts, {name}", chosen.cpu().tolist(), [[0, 1, 2, 3]])
        expect_close(look, f"weights, {name}", weights, expected, 1e-5)


def routing(look: Look) -> None:
    """Sort choices by expert, and pad to a capacity."""
    x = torch.arange(1.0, 5.0).view(4, 1).expand(4, 16).contiguous().half()
    choices = torch.tensor([[2], [0], [2], [0]], dtype=torch.int32)

    def routed(**options: int) -> Any:
        return run(
            look,
            "npu_moe_init_routing_v2",
            x,
            choices,
            active_expert_range=[0, 4],
            expert_num=4,
            expert_tokens_num_type=1,
            expert_tokens_num_flag=True,
            row_idx_type=0,
            **options,
        )

    expanded, rows, counts, _ = routed(active_num=4)
    expect_equal(look, "rows, stably by expert", expanded, x[[1, 3, 0, 2]])
    look.expect("places", rows.cpu().reshape(-1).tolist(), [2, 0, 3, 1])
    look.expect("counts", counts.cpu().reshape(-1).tolist(), [2, 0, 2, 0])
    padded, *_ = routed(active_num=0, expert_capacity=3, drop_pad_mode=1)
    expected = torch.zeros(4, 3, 16, dtype=torch.float16)
    expected[0, :2], expected[2, :2] = x[[1, 3]], x[[0, 2]]
    expect_equal(look, "rows with a capacity", padded, expected)


def finalizing(look: Look) -> None:
    """Add up rows of experts that a half could not count, numbered by column and by row."""
    tokens, k = 2, 4
    for dtype, first in zip(HALVES, (256.0, 2048.0), strict=True):
        rows = torch.ones(tokens * k, 16, dtype=dtype)
        rows[0] = first
        scales = torch.ones(tokens, k, dtype=dtype)
        for mode, by_row in ((0, False), (2, True)):
            places = torch.arange(tokens * k, dtype=torch.int32)
            places[-1] = -1
            given = (rows, None, None, None, scales, places, None, mode)
            seen = run(look, "npu_moe_finalize_routing", *given)
            # The first token has first + 1 + 1 + 1, rounded once; the second lacks its last row.
            table = places.view(tokens, k) if by_row else places.view(k, tokens).T
            wide = torch.cat([rows.double(), torch.zeros(1, 16).double()])
            expected = wide[table.long()].sum(1).float().to(dtype)
            expect_equal(look, f"{dtype}, mode {mode}", seen, expected)


def grouped_products(look: Look) -> None:
    """Multiply groups of rows; rows behind the last group stay as they are."""
    x, weight = drawn(6, 32, seed=0).half(), drawn(2, 32, 16, seed=1).half()

    def product(rows: torch.Tensor, matrices: torch.Tensor, ends: list[int]) -> Any:
        options: Any = {"split_item": 3, "group_type": 0, "group_list_type": 0}
        options["group_list"] = torch.tensor(ends)
        return run(look, "npu_grouped_matmul", [rows], [matrices], **options)[0]

    seen = product(x, weight, [2, 5])
    for group, (start, end) in enumerate(((0, 2), (2, 5))):
        expected = x[start:end].double() @ weight[group].double()
        expect_close(look, f"group {group}", seen[start:end], expected, 1e-3)
    count = 4 * 256
    total = product(torch.ones(1, count).bfloat16(), torch.ones(1, count, 16).bfloat16(), [1])
    look.expect("a product of 1,024 ones in bfloat16", float(total.cpu()[0, 0]), float(count))
