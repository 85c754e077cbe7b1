"""Grouped matrix products, plain and quantised, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.drawn_tensors import integers, random
from operators.int4 import packed

if TYPE_CHECKING:
    from collections.abc import Callable

HALVES = [torch.bfloat16, torch.float16]
GROUPS, INNER, COLUMNS = 3, 64, 32


def ranges(sizes: list[int]) -> list[tuple[int, int, int]]:
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [(g, end - size, end) for g, (size, end) in enumerate(zip(sizes, ends, strict=True))]


def grouped(
    x: torch.Tensor, weight: torch.Tensor, sizes: list[int], **changes: Any
) -> torch.Tensor:
    kind = changes.pop("group_list_type", 0)
    numbers = torch.tensor(sizes).cumsum(0) if kind == 0 else torch.tensor(sizes)
    results = torch_npu.npu_grouped_matmul(
        [x.to("npu")],
        [weight.to("npu")] if weight.dim() == 3 else [w.to("npu") for w in weight],
        group_list=numbers.to("npu"),
        split_item=changes.pop("split_item", 3),
        group_type=changes.pop("group_type", 0),
        group_list_type=kind,
        **changes,
    )
    assert len(results) == 1
    result: torch.Tensor = results[0].cpu()
    return result


@given(
    sizes=st.lists(st.integers(0, 7), min_size=GROUPS, max_size=GROUPS),
    dtype=st.sampled_from([*HALVES, torch.float32]),
    kind=st.sampled_from([0, 1]),
    biased=st.booleans(),
)
@settings(max_examples=15)
def test_rows_are_multiplied_by_the_matrix_of_their_group(
    conformance: Any, sizes: list[int], dtype: torch.dtype, kind: int, biased: bool
) -> None:
    rows = max(sum(sizes), 1)
    x = random(rows, INNER, seed=0, dtype=dtype)
    weight = random(GROUPS, INNER, COLUMNS, seed=1, dtype=dtype)
    bias = random(
        GROUPS, COLUMNS, seed=2, dtype=torch.float16 if dtype == torch.float16 else torch.float32
    )
    result = grouped(
        x, weight, sizes, group_list_type=kind, bias=[bias.to("npu")] if biased else None
    )
    for group, begin, end in ranges(sizes):
        expected = x[begin:end].double() @ weight[group].double()
        expected = expected + bias[group].double() if biased else expected
        bound = x[begin:end].double().abs() @ weight[group].double().abs() + 4
        conformance.close(result[begin:end], expected, ulps=INNER, magnitude=bound)


def test_transposed_matrices_are_read_as_they_are(conformance: Any) -> None:
    x = random(6, INNER, seed=0, dtype=torch.float16)
    weight = random(GROUPS, COLUMNS, INNER, seed=1, dtype=torch.float16)
    result = torch_npu.npu_grouped_matmul(
        [x.to("npu")],
        [weight.to("npu").transpose(1, 2)],
        group_list=torch.tensor([2, 3, 6]).to("npu"),
        split_item=2,
        group_type=0,
    )[0].cpu()
    expected = torch.cat([x[b:e].double() @ weight[g].T.double() for g, b, e in ranges([2, 1, 3])])
    bound = torch.tensor(50.0).double()
    conformance.close(result, expected, ulps=INNER, magnitude=bound)


def test_each_left_matrix_has_a_matrix_of_its_own(conformance: Any) -> None:
    x = [random(n, INNER, seed=n, dtype=torch.float16) for n in (3, 1, 4)]
    weight = [random(INNER, n, seed=n, dtype=torch.float16) for n in (16, 8, 24)]
    results = torch_npu.npu_grouped_matmul(
        [t.to("npu") for t in x], [w.to("npu") for w in weight], split_item=0, group_type=-1
    )
    for result, left, right in zip(results, x, weight, strict=True):
        conformance.close(
            result.cpu(),
            left.double() @ right.double(),
            ulps=INNER,
            magnitude=torch.tensor(50.0).double(),
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_listed_group_ends_give_each_part_a_matrix(conformance: Any, dtype: torch.dtype) -> None:
    sizes = [3, 1, 2]
    x = [random(size, INNER, seed=size, dtype=dtype) for size in sizes]
    weight = list(random(GROUPS, INNER, COLUMNS, seed=1, dtype=dtype))
    listed: Any = torch.ops.npu.npu_grouped_matmul.List
    results = listed([part.to("npu") for part in x], [own.to("npu") for own in weight])
    for result, part, own in zip(results, x, weight, strict=True):
        bound = part.double().abs() @ own.double().abs()
        conformance.close(result.cpu(), part.double() @ own.double(), ulps=INNER, magnitude=bound)


def test_groups_of_the_inner_dimension_give_a_product_each(conformance: Any) -> None:
    x, weight = (random(*s, seed=s[0], dtype=torch.float16) for s in ((8, INNER), (INNER, 16)))
    result = torch_npu.npu_grouped_matmul(
        [x.to("npu").T.contiguous().T],
        [weight.to("npu")],
        group_list=torch.tensor([16, 16, 64]).to("npu"),
        split_item=3,
        group_type=2,
    )[0].cpu()
    expected = torch.stack(
        [x[:, b:e].double() @ weight[b:e].double() for _, b, e in ranges([16, 0, 48])]
    )
    conformance.close(result, expected, ulps=INNER, magnitude=torch.tensor(50.0).double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("by_token", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_int8_product_is_exact_before_its_scales(
    conformance: Any, dtype: torch.dtype, by_token: bool, biased: bool
) -> None:
    sizes = [4, 0, 5]
    x, weight = integers(9, INNER, seed=0), integers(GROUPS, INNER, COLUMNS, seed=1)
    scale = random(GROUPS, COLUMNS, seed=2).abs().mul(1e-3)
    scale = scale.to(torch.bfloat16) if dtype == torch.bfloat16 else scale
    own = random(9, seed=3).abs()
    bias = integers(GROUPS, COLUMNS, seed=4).int() * 100
    result = grouped(
        x,
        weight,
        sizes,
        scale=[scale.to("npu")],
        per_token_scale=[own.to("npu")] if by_token else None,
        bias=[bias.to("npu")] if biased else None,
        output_dtype=dtype,
    )
    for group, begin, end in ranges(sizes):
        total = x[begin:end].double() @ weight[group].double()
        total = (total + bias[group].double() if biased else total) * scale[group].double()
        total = total * own[begin:end, None].double() if by_token else total
        conformance.close(result[begin:end], total)


def test_int8_product_as_int32_is_exact() -> None:
    x, weight = integers(5, INNER, seed=0), integers(GROUPS, INNER, COLUMNS, seed=1)
    result = grouped(x, weight, [2, 3, 0], output_dtype=torch.int32)
    expected = torch.cat([x[b:e].int() @ weight[g].int() for g, b, e in ranges([2, 3, 0])])
    assert torch.equal(result, expected)


def test_int8_result_takes_packed_scales(conformance: Any) -> None:
    x, weight = integers(5, INNER, seed=0), integers(GROUPS, INNER, COLUMNS, seed=1)
    scale = random(GROUPS, COLUMNS, seed=2).abs().mul(1e-3)
    words = torch_npu.npu_trans_quant_param(scale.to("npu").flatten()).view(GROUPS, COLUMNS)
    result = grouped(x, weight, [2, 2, 1], scale=[words])
    kept = (words.cpu() & 0xFFFFFFFF).int().view(torch.float32).double()
    expected = torch.cat(
        [x[b:e].double() @ weight[g].double() * kept[g] for g, b, e in ranges([2, 2, 1])]
    )
    conformance.quantized(result, expected)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("dtype", HALVES)
def test_antiquantised_matrix_is_rounded_to_the_dtype_of_x(
    conformance: Any, bits: int, pieces: int, dtype: torch.dtype
) -> None:
    if bits == 8 and pieces != 1:
        pytest.skip("int8 has scales for whole columns only")
    x = random(7, INNER, seed=0, dtype=dtype)
    most = 7 if bits == 4 else 127
    weight = integers(GROUPS, INNER, COLUMNS, seed=1, least=-most, most=most)
    shape = (GROUPS, pieces, COLUMNS) if bits == 4 and pieces > 1 else (GROUPS, COLUMNS)
    scale = random(*shape, seed=2).abs().mul(0.1).to(dtype)
    offset = random(*shape, seed=3).to(dtype)
    result = grouped(
        x,
        packed(weight) if bits == 4 else weight,
        [3, 3, 1],
        antiquant_scale=[scale.to("npu")],
        antiquant_offset=[offset.to("npu")],
    )
    for group, begin, end in ranges([3, 3, 1]):
        spread = [
            t[group].float().reshape(-1, COLUMNS).repeat_interleave(INNER // pieces, 0)
            for t in (scale, offset)
        ]
        own = torch.float16 if dtype == torch.float16 else torch.float32
        shifted = weight[group].to(own) + spread[1].to(own)
        matrix = (shifted * spread[0].to(own)).to(dtype).double()
        bound = x[begin:end].double().abs() @ matrix.abs()
        conformance.close(
            result[begin:end], x[begin:end].double() @ matrix, ulps=INNER, magnitude=bound
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_antiquantised_float16_is_shifted_and_scaled_in_float16_and_bfloat16_in_float32(
    dtype: torch.dtype,
) -> None:
    weight = integers(GROUPS, INNER, COLUMNS, seed=1)
    scale = random(GROUPS, COLUMNS, seed=2).abs().to(dtype)
    offset = random(GROUPS, COLUMNS, seed=3).to(dtype)
    given = {"antiquant_scale": [scale.to("npu")], "antiquant_offset": [offset.to("npu")]}
    # Rows of the identity give the matrix itself.
    result = grouped(torch.eye(INNER).to(dtype), weight, [INNER, 0, 0], **given)
    once = ((weight[0].float() + offset[0].float()) * scale[0].float()).to(dtype)
    twice = (weight[0].to(dtype) + offset[0]) * scale[0]
    assert not torch.equal(once, twice)
    assert torch.equal(result, twice if dtype == torch.float16 else once)


def test_one_matrix_in_a_list_is_antiquantised() -> None:
    weight, scale = integers(INNER, COLUMNS, seed=1), random(COLUMNS, seed=2).half()
    result = torch_npu.npu_grouped_matmul(
        [torch.eye(INNER).half().to("npu")],
        [weight.to("npu")],
        antiquant_scale=[scale.to("npu")],
        antiquant_offset=[torch.zeros(COLUMNS).half().to("npu")],
        split_item=0,
        group_type=-1,
    )[0]
    assert torch.equal(result.cpu(), weight.half() * scale)


@pytest.mark.parametrize("activation", [1, 2, 4, 5])
def test_activation_follows_the_scales(conformance: Any, activation: int) -> None:
    x, weight = integers(4, INNER, seed=0), integers(GROUPS, INNER, COLUMNS, seed=1)
    scale, own = random(GROUPS, COLUMNS, seed=2).mul(1e-4), torch.ones(4)
    result = grouped(
        x,
        weight,
        [1, 2, 1],
        scale=[scale.to("npu")],
        per_token_scale=[own.to("npu")],
        output_dtype=torch.float16,
        act_type=activation,
    )
    values = torch.cat(
        [x[b:e].double() @ weight[g].double() * scale[g].double() for g, b, e in ranges([1, 2, 1])]
    )
    functions: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
        1: torch.relu,
        2: lambda t: torch.nn.functional.gelu(t, approximate="tanh"),
        4: lambda t: t * torch.sigmoid(1.702 * t),
        5: torch.nn.functional.silu,
    }
    conformance.close(result, functions[activation](values), ulps=64, magnitude=values.abs())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": None, "output_dtype": torch.float16}, "argument 'scale'"),
        ({"act_type": 3}, "argument 'actType'"),
        ({"act_type": 1}, "argument 'actType'"),
        ({"group_type": 2}, "argument 'groupType'|group"),
    ],
)
def test_grouped_matmul_refuses(changes: dict[str, Any], message: str) -> None:
    x, weight = integers(4, INNER, seed=0), integers(GROUPS, INNER, COLUMNS, seed=1)
    arguments = {"scale": [torch.ones(GROUPS, COLUMNS).to("npu")], "output_dtype": torch.float16}
    with pytest.raises(RuntimeError, match=message):
        grouped(x, weight, [1, 2, 1], **{**arguments, **changes})


def test_groups_that_do_not_fit_are_reported() -> None:
    x = random(4, INNER, seed=0, dtype=torch.float16).to("npu")
    weight = random(GROUPS, INNER, COLUMNS, seed=1, dtype=torch.float16).to("npu")
    torch_npu.npu_grouped_matmul(
        [x], [weight], group_list=torch.tensor([2, 3, 9]).to("npu"), split_item=3, group_type=0
    )
    with pytest.raises(RuntimeError, match=r"groupList|507"):
        torch_npu.npu.synchronize()


@pytest.mark.parametrize("kind", [0, 1])
def test_grouped_swiglu_quant_is_the_three_in_one(conformance: Any, kind: int) -> None:
    sizes, rows = [3, 0, 4], 7
    x, weight = integers(rows, INNER, seed=0), integers(GROUPS, INNER, 2 * COLUMNS, seed=1)
    scale = random(GROUPS, 2 * COLUMNS, seed=2).abs().mul(1e-4)
    own = random(rows, seed=3).abs() + 0.1
    numbers = torch.tensor(sizes).cumsum(0) if kind == 0 else torch.tensor(sizes)
    result, steps = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
        x.to("npu"),
        [weight.to("npu")],
        [scale.to("npu")],
        own.to("npu"),
        numbers.to("npu"),
        group_list_type=kind,
    )
    for group, begin, end in ranges(sizes):
        if begin == end:
            continue
        product = x[begin:end].double() @ weight[group].double() * scale[group].double()
        gate, linear = (product * own[begin:end, None].double()).chunk(2, -1)
        values = torch.nn.functional.silu(gate) * linear
        step = values.abs().amax(-1) / 127
        conformance.close(steps.cpu()[begin:end], step, ulps=64)
        conformance.quantized(result.cpu()[begin:end], values / step[:, None], slack=1e-2)
