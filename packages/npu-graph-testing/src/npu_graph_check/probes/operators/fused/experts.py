"""The choice of experts, the way to their rows and back, and grouped products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.probes.operators.agreement import HALVES, drawn, expect_close, expect_equal

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def gating_ties(look: Look) -> None:
    """Choose among equal experts, and for a row that is finished."""
    zeros, finished = torch.zeros(2, 8).to(look.on), torch.tensor([False, True]).to(look.on)
    _, chosen, _ = torch.ops.npu.npu_moe_gating_top_k_softmax(zeros, None, 3)
    look.expect("among equals", chosen.cpu().tolist(), [[0, 1, 2]] * 2)
    _, chosen, _ = torch.ops.npu.npu_moe_gating_top_k_softmax(zeros, finished, 3)
    look.expect("with a finished row", chosen.cpu().tolist(), [[0, 1, 2], [8, 8, 8]])


def gating_weights(look: Look) -> None:
    """Compare the weights of sigmoids, and of softmax with and without their sum."""
    x = torch.linspace(-3, 3, 16).flip(0).view(1, -1)
    for norm, renorm in ((1, 0), (0, 0), (0, 1)):
        weights, chosen, _ = torch.ops.npu.npu_moe_gating_top_k(
            x.to(look.on), 4, norm_type=norm, renorm=renorm
        )
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
    fixed: dict[str, Any] = {
        "expert_num": 4,
        "expert_tokens_num_type": 1,
        "expert_tokens_num_flag": True,
        "row_idx_type": 0,
    }
    expanded, rows, counts, _ = torch.ops.npu.npu_moe_init_routing_v2(
        x.to(look.on), choices.to(look.on), active_num=4, active_expert_range=[0, 4], **fixed
    )
    expect_equal(look, "rows, stably by expert", expanded, x[[1, 3, 0, 2]])
    look.expect("places", rows.cpu().reshape(-1).tolist(), [2, 0, 3, 1])
    look.expect("counts", counts.cpu().reshape(-1).tolist(), [2, 0, 2, 0])
    padded, *_ = torch.ops.npu.npu_moe_init_routing_v2(
        x.to(look.on),
        choices.to(look.on),
        active_num=0,
        expert_capacity=3,
        drop_pad_mode=1,
        active_expert_range=[0, 4],
        **fixed,
    )
    expected = torch.zeros(4, 3, 16, dtype=torch.float16)
    expected[0, :2], expected[2, :2] = x[[1, 3]], x[[0, 2]]
    expect_equal(look, "rows with a capacity", padded, expected)


def finalizing(look: Look) -> None:
    """Add up rows of experts that a half could not count, numbered by column and by row."""
    on, tokens, k = look.on, 2, 4
    for dtype, first in zip(HALVES, (256.0, 2048.0), strict=True):
        rows = torch.ones(tokens * k, 16, dtype=dtype)
        rows[0] = first
        scales = torch.ones(tokens, k, dtype=dtype)
        for mode, by_row in ((0, False), (2, True)):
            places = torch.arange(tokens * k, dtype=torch.int32)
            places[-1] = -1
            seen = torch.ops.npu.npu_moe_finalize_routing(
                rows.to(on), None, None, None, scales.to(on), places.to(on), None, mode
            )
            # The first token has first + 1 + 1 + 1, rounded once; the second lacks its last row.
            table = places.view(tokens, k) if by_row else places.view(k, tokens).T
            wide = torch.cat([rows.double(), torch.zeros(1, 16).double()])
            expected = wide[table.long()].sum(1).float().to(dtype)
            expect_equal(look, f"{dtype}, mode {mode}", seen, expected)


def grouped_products(look: Look) -> None:
    """Multiply groups of rows; rows behind the last group stay as they are."""
    x, weight = drawn(6, 32, seed=0).half(), drawn(2, 32, 16, seed=1).half()
    ends = torch.tensor([2, 5])
    seen = torch.ops.npu.npu_grouped_matmul(
        [x.to(look.on)],
        [weight.to(look.on)],
        group_list=ends.to(look.on),
        split_item=3,
        group_type=0,
        group_list_type=0,
    )[0]
    for group, (start, end) in enumerate(((0, 2), (2, 5))):
        expected = x[start:end].double() @ weight[group].double()
        expect_close(look, f"group {group}", seen[start:end], expected, 1e-3)
    count = 4 * 256
    ones, column = torch.ones(1, count).bfloat16().to(look.on), torch.ones(1, count, 16).bfloat16()
    total = torch.ops.npu.npu_grouped_matmul(
        [ones],
        [column.to(look.on)],
        group_list=torch.tensor([1]).to(look.on),
        split_item=3,
        group_type=0,
        group_list_type=0,
    )[0]
    look.expect("a product of 1,024 ones in bfloat16", float(total.cpu()[0, 0]), float(count))
