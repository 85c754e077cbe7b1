"""Grouped products whose rows are weighted and added up by token, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import integers, random
from operators.int4 import packed
from operators.operator_call import Single, call_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

NZ, ROWS, TOKENS, SHARED, START = 29, 9, 5, 2, 1


@pytest.fixture(autouse=True)
def _internal_formats() -> Iterator[None]:
    torch_npu.npu.config.allow_internal_format = True
    yield
    torch_npu.npu.config.allow_internal_format = False


def as_int64(scale: torch.Tensor) -> torch.Tensor:
    return scale.view(torch.int32).long() & 0xFFFFFFFF


class Call:
    """Rows of groups that belong to tokens; one may be left over."""

    def __init__(self, inner: int, columns: int, groups: list[int]) -> None:
        self.groups = groups
        self.x = integers(ROWS, inner, seed=1)
        self.row_scale = random(ROWS, seed=2).abs()
        self.logit = random(ROWS, seed=3)
        self.row_index = integers(ROWS, seed=4, least=0, most=TOKENS - 1).long()
        self.shared = random(SHARED, columns, seed=5).bfloat16()

    def arguments(self, **changes: Any) -> dict[str, Any]:
        given = {
            "group_list": torch.tensor(self.groups),
            "pertoken_scale": self.row_scale,
            "shared_input": self.shared,
            "logit": self.logit,
            "row_index": self.row_index,
            "shared_input_weight": 0.5,
            "shared_input_offset": START,
            "output_bs": TOKENS,
            **changes,
        }
        return {k: v.to("npu") if isinstance(v, torch.Tensor) else v for k, v in given.items()}

    def check(
        self,
        conformance: Any,
        result: torch.Tensor,
        products: list[torch.Tensor],
        bounds: list[torch.Tensor],
        *,
        shared: bool = True,
    ) -> None:
        """Compare with the products of each group, and sums of magnitudes."""
        whole = torch.zeros(TOKENS, products[0].shape[1]).double()
        bound = whole.clone()
        start = 0
        for product, size, count in zip(products, bounds, self.groups, strict=True):
            rows = slice(start, start + count)
            factor = (self.row_scale[rows].double() * self.logit[rows].double()).unsqueeze(-1)
            whole.index_add_(0, self.row_index[rows], product * factor)
            bound.index_add_(0, self.row_index[rows], size * factor.abs())
            start += count
        if shared:
            whole[START : START + SHARED] += 0.5 * self.shared.double()
            bound[START : START + SHARED] += self.shared.double().abs()
        conformance.close(result.cpu(), whole, ulps=16, magnitude=bound)

    def rows_of_groups(self) -> list[torch.Tensor]:
        return list(torch.split(self.x, [*self.groups, ROWS - sum(self.groups)]))[
            : len(self.groups)
        ]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_int8_products_are_added_up_by_token(
    conformance: Any, kind: int, shared: bool, index_dtype: torch.dtype
) -> None:
    call = Call(32, 256, [3, 0, 5])
    weight, scale = integers(3, 32, 256, seed=6), random(3, 256, seed=7) / 1000
    changes: dict[str, Any] = {"group_list_type": kind, "row_index": call.row_index.to(index_dtype)}
    if kind == 0:
        changes["group_list"] = torch.tensor(call.groups).cumsum(0)
    if not shared:
        changes["shared_input"] = None
    nz = torch_npu.npu_format_cast(weight.to("npu"), NZ)
    result = torch_npu.npu_grouped_matmul_finalize_routing(
        call.x.to("npu"), nz, scale=scale.to("npu"), **call.arguments(**changes)
    )
    products = [
        rows.double() @ matrix.double() * own.double()
        for rows, matrix, own in zip(call.rows_of_groups(), weight, scale, strict=True)
    ]
    call.check(conformance, result, products, [p.abs() for p in products], shared=shared)


@pytest.mark.parametrize(("pieces", "offset"), [(1, False), (8, True)])
def test_int4_products_are_added_up_by_token(conformance: Any, pieces: int, offset: bool) -> None:
    inner, columns = 2048, 7168
    call = Call(inner, columns, [3, 5])
    weight = integers(2, inner, columns, seed=6, least=-8, most=7)
    scale = random(2, pieces, columns, seed=7).abs() / 1000
    bias, shift = random(2, columns, seed=8), random(2, pieces, columns, seed=9) / 1000
    result = torch_npu.npu_grouped_matmul_finalize_routing(
        call.x.to("npu"),
        packed(weight).to("npu"),
        scale=as_int64(scale).to("npu"),
        bias=bias.to("npu"),
        offset=shift.to("npu") if offset else None,
        **call.arguments(),
    )
    products, bounds = [], []
    for group, rows in enumerate(call.rows_of_groups()):
        product = bias[group].double().expand(len(rows), columns)
        bound = product.abs()
        for piece, part in enumerate(rows.double().chunk(pieces, 1)):
            matrix = weight[group].chunk(pieces, 0)[piece].double()
            term = (part - 8) @ matrix * scale[group, piece].double()
            product, bound = product + term, bound + term.abs()
            if offset:
                term = part.sum(1, keepdim=True) * shift[group, piece].double()
                product, bound = product + term, bound + term.abs()
        products.append(product)
        bounds.append(bound)
    call.check(conformance, result, products, bounds)


@pytest.mark.parametrize("version", ["V2", "WeightNz"])
def test_older_version_equals_the_newer_one(version: str) -> None:
    nz = version == "WeightNz"
    call = Call(*((32, 256) if nz else (2048, 7168)), [4, 5])
    if nz:
        weight = torch_npu.npu_format_cast(integers(2, 32, 256, seed=6).to("npu"), NZ)
        scale, bias = random(2, 256, seed=7).to("npu"), None
    else:
        weight = packed(integers(2, 2048, 7168, seed=6, least=-8, most=7)).to("npu")
        scale = as_int64(random(2, 1, 7168, seed=7).abs()).to("npu")
        bias = random(2, 7168, seed=8).to("npu")
    given = call.arguments()
    expected = torch_npu.npu_grouped_matmul_finalize_routing(
        call.x.to("npu"), weight, scale=scale, bias=bias, **given
    )
    rows = [
        given[name]
        for name in ("pertoken_scale", "group_list", "shared_input", "logit", "row_index")
    ]
    nothing = [] if nz else [None] * 3
    out = torch.empty_like(expected)
    call_operator(
        f"aclnnGroupedMatmulFinalizeRouting{version}",
        *(call.x.to("npu"), weight, scale, bias, *nothing, *rows),
        *(0, Single(0.5), START, False, False, 1, out),
    )
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logit": torch.zeros(3)}, "'logit'"),
        ({"row_index": torch.zeros(ROWS)}, "'rowIndex'.*int64"),
        ({"pertoken_scale": None}, "pertokenScale"),
        ({"shared_input_offset": 4}, "sharedInputOffset.*found 4"),
        ({"bias": torch.zeros(3, 256)}, "'bias'"),
        ({"shared_input": torch.zeros(SHARED, 256)}, "'sharedInput'.*bfloat16"),
    ],
)
def test_what_the_device_refuses_is_refused(changes: Any, reason: str, capfd: Any) -> None:
    del capfd
    call = Call(32, 256, [3, 0, 5])
    weight = integers(3, 32, 256, seed=6).to("npu")
    scale = torch.ones(3, 256).to("npu")
    with pytest.raises(RuntimeError, match=r"'x2'.*int32.*found int8"):
        torch_npu.npu_grouped_matmul_finalize_routing(
            call.x.to("npu"), weight, scale=scale, **call.arguments()
        )
    nz = torch_npu.npu_format_cast(weight, NZ)
    with pytest.raises(RuntimeError, match=f"(?s){reason}"):
        torch_npu.npu_grouped_matmul_finalize_routing(
            call.x.to("npu"), nz, scale=scale, **call.arguments(**changes)
        )
