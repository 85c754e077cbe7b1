"""How fused operators quantise: scales, groups, packing and what is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from npu_graph_check.probes.operators.agreement import (
    HALVES,
    drawn,
    expect_close,
    expect_equal,
    expect_refused,
    run,
)

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_WIDTH = 64


def int4(look: Look) -> None:
    """Pack eight int4 into an int32."""
    x = torch.tensor([[-8.0, -1.0, 0.0, 1.0, 2.0, 7.0, 9.0, -9.0]])
    seen = run(look, "npu_quantize", x, torch.ones(1), None, torch.quint4x2, -1, False)
    look.expect("values, from the lowest bits", _of_int4(seen), [-8, -1, 0, 1, 2, 7, 7, -8])


def divides_and_multiplies(look: Look) -> None:
    """Quantise by a scale of 1/4, which divides in one operator and multiplies in the other."""
    x = torch.tensor([[1.0, -2.0, 30.0, 3.0] * 8], dtype=torch.float16)
    scale = torch.tensor([0.25])
    for divides, factor in ((True, 4.0), (False, 0.25)):
        own = scale if divides else scale.half()
        seen = run(look, "npu_quantize", x, own, None, torch.qint8, 1, divides)
        expected = (x.double() * factor).round().clamp(-128, 127).to(torch.int8)
        name = "Quantize divides" if divides else "AscendQuantV3 multiplies"
        expect_equal(look, name, seen, expected)


def smoothed_groups(look: Look) -> None:
    """Smooth two groups of rows; those behind the last are quantised as they are."""
    row = torch.arange(32, dtype=torch.float16)
    row[-1] = 127
    factors = torch.stack([torch.full((32,), 2.0), torch.full((32,), 4.0)]).half()
    groups, rows = torch.tensor([1, 2], dtype=torch.int32), row.expand(4, -1).contiguous()
    options = {"smooth_scales": factors, "group_index": groups}
    seen, scale = run(look, "npu_dynamic_quant", rows, **options)
    expect_equal(look, "values", seen, row.to(torch.int8).expand(4, -1))
    look.expect("scales", scale.cpu().reshape(-1).tolist(), [2.0, 4.0, 1.0, 1.0])


def only_by_token(look: Look) -> None:
    """Ask for one scale of all rows, and one of each column."""
    x = drawn(4, 32, seed=0).half()
    for mode in ("pertensor", "perchannel"):
        expect_refused(look, mode, "npu_dynamic_quant", x, quant_mode=mode)


def swiglu(look: Look) -> None:
    """Compare the scales of both SwiGLU operators: one is the other's reciprocal."""
    x = drawn(4, 2 * _WIDTH, seed=0, dtype=torch.bfloat16)
    gate, up = x.double().chunk(2, -1)
    values = functional.silu(gate) * up
    largest = values.abs().amax(-1)
    seen, scale = run(look, "npu_swiglu_quant", x, activate_left=True, quant_mode=1)
    expect_close(look, "scale of SwiGluQuant", scale.view(-1), 127 / largest, 1e-5)
    expected = values * (127 / largest).unsqueeze(-1)
    expect_close(look, "values of SwiGluQuant", seen, expected, 0.51 / 127)
    seen, scale = run(look, "npu_dequant_swiglu_quant", x, activate_left=True, quant_mode=1)
    expect_close(look, "scale of DequantSwigluQuant", scale.view(-1), largest / 127, 1e-5)
    expect_close(look, "its values, without groups", seen, expected, 0.51 / 127)


def grouped(look: Look) -> None:
    """Quantise rows with the scales of their groups."""
    x = torch.ones(5, 16, dtype=torch.float16)
    scale = torch.tensor([[2.0], [3.0]]).expand(2, 16).contiguous()
    ends = torch.tensor([2, 5])
    seen = run(look, "npu_group_quant", x, scale, ends, dst_dtype=torch.qint8)
    expected = torch.tensor([2, 2, 3, 3, 3], dtype=torch.int8).view(5, 1).expand(5, 16)
    expect_equal(look, "values", seen, expected)


def kronecker(look: Look) -> None:
    """Turn rows by identities, and cut what is too large for a clipped scale."""
    x = torch.zeros(1, 8, 16, dtype=torch.float16)
    x[0, 0, :8] = torch.tensor([14.0, 7.0, 6.0, 2.0, -14.0, -7.0, 1.0, 0.0])
    left, right = torch.eye(8).half(), torch.eye(16).half()
    for clip, scale, values in (
        (1.0, 2.0, [7, 4, 3, 1, -7, -4, 0, 0]),
        (0.5, 1.0, [7, 7, 6, 2, -8, -7, 1, 0]),
    ):
        seen, scales = run(look, "npu_kronecker_quant", x, left, right, clip_ratio=clip)
        look.expect(f"clip ratio {clip}: the scale", float(scales.cpu().reshape(-1)[0]), scale)
        look.expect(f"clip ratio {clip}: the values", _of_int4(seen), values)


def _of_int4(packed: torch.Tensor) -> list[int]:
    """Return the eight int4 in the first int32."""
    word = int(packed.cpu().reshape(-1)[0])
    nibbles = [(word >> (4 * place)) & 15 for place in range(8)]
    return [nibble - 16 if nibble > 7 else nibble for nibble in nibbles]


def shortened_scales(look: Look) -> None:
    """Pack float32 scales into 19 bits, cut and rounded: halves go up."""
    # Ten bits of a fraction stay: the third of these lies between two of them.
    values = torch.tensor([1.0, 1.0 + 2**-10, 1.0 + 2**-11, 1.0 + 3 * 2**-11])
    for mode, expected in (
        (0, [1.0, 1.0 + 2**-10, 1.0, 1.0 + 2**-10]),
        (1, [1.0, 1.0 + 2**-10, 1.0 + 2**-10, 1.0 + 2**-9]),
    ):
        packed = run(look, "npu_trans_quant_param", values, None, mode).cpu()
        seen = (packed & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
        look.expect(f"round_mode {mode}", seen.double().tolist(), expected)


def products(look: Look) -> None:
    """Scale products of int8 by column and by token, and add a bias."""
    generator = torch.Generator().manual_seed(0)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-127, 128, shape, generator=generator).to(torch.int8)

    left, right = whole(8, 256), whole(256, 32)
    total = left.long() @ right.long()
    column, token = drawn(32, seed=1).abs() * 1e-3, drawn(8, seed=2).abs() + 0.1
    bias = torch.arange(32, dtype=torch.int32) * 1_003
    options: dict[str, Any] = {"bias": bias, "output_dtype": torch.int32}
    seen = run(look, "npu_quant_matmul", left, right, torch.ones(1), **options)
    expect_equal(look, "the sum with an int32 bias", seen, (total + bias).to(torch.int32))
    for dtype in HALVES:
        options = {"pertoken_scale": token, "bias": torch.arange(32.0), "output_dtype": dtype}
        seen = run(look, "npu_quant_matmul", left, right, column, **options)
        scaled = total.double() * column.double() * token.double().unsqueeze(-1)
        share = 1.01 * torch.finfo(dtype).eps / 2
        expect_close(
            look, f"{dtype}: scaled, with a bias", seen, scaled + torch.arange(32.0), share
        )


def weights_of_int8(look: Look) -> None:
    """Multiply with a matrix of int8: dequantised, it is rounded to the dtype of the rows."""
    x = torch.eye(64).half()
    generator = torch.Generator().manual_seed(1)
    weight = torch.randint(-127, 128, (64, 32), generator=generator).to(torch.int8)
    scale, offset = (drawn(32, seed=2).abs() * 0.01).half(), drawn(32, seed=3).round().half()
    seen = run(look, "npu_weight_quant_batchmatmul", x, weight, scale, offset)
    expected = (weight.double() + offset.double()) * scale.double()
    expect_close(look, "rows of the matrix", seen, expected, 1.01 * torch.finfo(torch.float16).eps)


def blocks(look: Look) -> None:
    """Quantise each 128 values of a row with a scale of their own."""
    x = torch.cat([torch.arange(128.0), torch.arange(128.0) * 2]).view(1, -1).half()
    seen, scale = run(look, "npu_dynamic_block_quant", x)
    expected = torch.arange(128).to(torch.int8).repeat(2).view(1, -1)
    expect_equal(look, "values", seen, expected)
    look.expect("scales", scale.cpu().reshape(-1).tolist(), [1.0, 2.0])
