"""Losses, pooling, convolution and masks of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from npu_graph_check.probes.operators.agreement import (
    HALVES,
    drawn,
    expect_close,
    expect_equal,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def accumulation(look: Look) -> None:
    """Add more ones in losses, pools and convolutions than the dtype could count."""
    on = look.on
    for dtype, first in zip(HALVES, (256, 2048), strict=True):
        count = 4 * first
        ones, zeros = torch.ones(count, dtype=dtype).to(on), torch.zeros(count, dtype=dtype).to(on)
        image = ones.view(1, 1, 32, -1)
        found = {
            "mse_loss": functional.mse_loss(ones, zeros, reduction="sum"),
            "l1_loss": functional.l1_loss(ones, zeros, reduction="sum"),
            "conv2d": functional.conv2d(image, image),
            "avg_pool2d": functional.avg_pool2d(image, image.shape[-2:]) * count,
        }
        for name, value in found.items():
            look.expect(f"{dtype}: {name} of {count} ones", value.cpu().double().item(), count)


def layer_norms(look: Look) -> None:
    """Normalise in bfloat16: layers and groups, against float64, off by one rounding."""
    for dtype in HALVES:
        x = drawn(4, 8, 64, seed=0, dtype=dtype)
        share = 1.01 * torch.finfo(dtype).eps / 2
        for name, option in (
            ("layer_norm", (64,)),
            ("group_norm", 4),
            ("softmax", -1),
            ("log_softmax", -1),
        ):
            norm = getattr(functional, name)
            seen = run(look, norm, x, option)
            expect_close(look, f"{dtype}: {name}", seen, norm(x.double(), option), share)


def dropout_masks(look: Look) -> None:
    """Compare the bits of a mask with what was kept, and with Bernoulli draws of the same seed."""
    on, count = look.on, 1000
    npu: Any = vars(torch)["npu"]
    values = torch.ones(count).to(on)
    npu.manual_seed(5)
    result, mask = torch.ops.aten.native_dropout(values, 0.5, True)
    kept = (result != 0).cpu()
    packed = mask.cpu().view(torch.uint8)
    look.expect("bits of the mask, modulo 128", packed.numel() * 8 % 128, 0)
    bits = ((packed.unsqueeze(-1) >> torch.arange(8)) & 1).flatten()[:count]
    expect_equal(look, "bits, the lowest first, and what was kept", bits.bool(), kept)
    npu.manual_seed(5)
    again = torch.empty(count, device=on).bernoulli_(0.5)
    expect_equal(look, "Bernoulli draws of the same seed", again.cpu() != 0, kept)


def pooling_gradient(look: Look) -> None:
    """Find the gradient of a maximum again from its input."""
    x = drawn(1, 2, 8, 8, seed=0).half()

    def gradient(values: torch.Tensor) -> torch.Tensor:
        given = values.detach().requires_grad_()
        total = functional.max_pool2d(given, 2).sum()
        return torch.autograd.grad(total, given)[0]

    expect_equal(look, "float16", gradient(x.to(look.on)), gradient(x.float()).half())
    out, mask = torch.ops.aten.max_pool2d_with_indices(x.to(look.on), [2, 2])
    look.expect("dtype of the mask", str(mask.dtype), "torch.int8")
    look.figure("bytes of the mask of an output", mask.numel() / out.numel(), "bytes")


def lstm_cell(look: Look) -> None:
    """Step a fused cell, whose gates are input, forget, candidate and output."""
    inputs, hidden = drawn(3, 24, seed=0), drawn(3, 24, seed=1)
    state = drawn(3, 6, seed=2)
    cell = getattr(torch.ops.aten, "_thnn_fused_lstm_cell")  # noqa: B009 - a name of torch's own
    seen = run(look, cell, inputs, hidden, state)
    first, forget, candidate, out = (inputs + hidden).double().chunk(4, 1)
    kept = forget.sigmoid() * state.double() + first.sigmoid() * candidate.tanh()
    expect_close(look, "hidden state", seen[0], out.sigmoid() * kept.tanh(), 1e-4)
    expect_close(look, "state of the cell", seen[1], kept, 1e-4)


def matrix_vector(look: Look) -> None:
    """Add a scaled product to a scaled vector: 2 * 10 + 3 * 4."""
    vector, matrix = torch.full((2,), 10.0), torch.ones(2, 4)
    seen = run(look, torch.addmv, vector, matrix, torch.ones(4), beta=2, alpha=3)
    expect_equal(look, "addmv", seen, torch.full((2,), 32.0))
    wide = torch.tensor([1.0, 2.0], dtype=torch.float64)
    expect_equal(
        look, "a sum in float64", run(look, torch.add, wide, wide).cpu().double(), wide * 2
    )
