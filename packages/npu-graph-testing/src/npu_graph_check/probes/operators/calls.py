"""How operators are called: what they refuse, by which status, and what they wait for."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.cann.runtime import Cann, Handle
from npu_graph_check.cann.vector import Vector
from npu_graph_check.probes.operators.agreement import expect_equal, expect_refused, run

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def statuses(look: Look) -> None:
    """Call an operator without tensors; then launch a call of it twice."""
    cann = Cann()
    size, executor = ctypes.c_uint64(), Handle()
    out = (ctypes.byref(size), ctypes.byref(executor))
    values, stream = Vector(cann, [1.0] * 4), cann.create_stream()
    none = cann.operator("aclnnInplaceAddsGetWorkspaceSize", None, None, None, *out)
    look.expect("a null pointer", none, 161001)
    one, two = values.scalar(1.0), values.scalar(1.0)
    prepared = cann.operator("aclnnInplaceAddsGetWorkspaceSize", values.tensor, one, two, *out)
    look.expect("the workspace phase", prepared, 0)
    look.expect("bytes of workspace", size.value, 0)
    repeatable = cann.operator("aclSetAclOpExecutorRepeatable", executor)
    look.expect("making its executor repeatable", repeatable, 0)
    for number in (1, 2):
        launched = cann.operator("aclnnInplaceAdds", None, 0, executor, stream)
        look.expect(f"launch {number} of it", launched, 0)
    cann.synchronize(stream)
    look.expect("the values after two launches", values.read(), [3.0] * 4)


def refused_dtypes(look: Look) -> None:
    """Give operators dtypes that their documents leave out for Atlas A2 and A3."""
    single, row = torch.ones(4, 64), torch.ones(64)
    half, whole, query = single.half(), single.int(), single.view(4, 1, 1, 64)
    attention: dict[str, Any] = {"num_heads": 1, "input_layout": "BNSD"}
    for name, dtype, given, options in (
        ("npu_rms_norm", "int32", (whole, row.int()), {}),
        ("npu_dynamic_quant", "float32", (single,), {}),
        ("npu_swiglu", "int32", (whole,), {}),
        ("npu_quant_matmul", "float16", (half, half.T, row), {}),
        ("npu_fused_infer_attention_score", "float32", (query, query, query), attention),
    ):
        expect_refused(look, f"{name} of {dtype}", name, *given, **options)


def other_products(look: Look) -> None:
    """Call an operator that is documented for later products only."""
    try:
        run(look, "npu_dynamic_mx_quant", torch.ones(4, 64, dtype=torch.bfloat16))
    except RuntimeError as error:
        look.expect("whether the status is 561112", "561112" in str(error), True)
    else:
        look.expect("npu_dynamic_mx_quant", "taken", "refused")


def scalars_and_strides(look: Look) -> None:
    """Give tensors without dimensions, and tensors that are not contiguous."""
    for name in ("exp", "rsqrt", "isfinite"):
        seen = run(look, getattr(torch, name), torch.tensor(1.0))
        look.expect(f"dimensions of {name} of a scalar", seen.dim(), 0)
    x = torch.arange(64.0).view(8, 8).half()
    gamma = torch.ones(8, dtype=torch.float16)
    turned = run(look, "npu_rms_norm", x.to(look.on).T, gamma)[0]
    straight = run(look, "npu_rms_norm", x.T.contiguous(), gamma)[0].cpu()
    expect_equal(look, "npu_rms_norm of a transpose", turned, straight)


def shapes_of_results(look: Look) -> None:
    """Ask for results whose shape only their kernel knows, behind kernels that are queued."""
    values = torch.zeros(1 << 16, device=look.on)
    for _ in range(50):
        values.add_(0)
    values[100:110] = 1
    look.expect("nonzero", values.nonzero().cpu().flatten().tolist(), list(range(100, 110)))
    look.expect("masked_select", values.masked_select(values > 0).numel(), 10)
    look.expect("unique", torch.unique(values).cpu().tolist(), [0.0, 1.0])


def outside_index(look: Look) -> None:
    """Read outside a tensor: the kernel fails."""
    look.opened.synchronize()
    npu: Any = vars(torch)["npu"]
    look.doing("reading outside a tensor")
    try:
        run(look, torch.index_select, torch.ones(4, 8), 0, torch.tensor([100000]))
        npu.synchronize()
    except RuntimeError as error:
        look.expect("whether the status is 507015", "507015" in str(error), True)
    else:
        look.expect("the kernel", "ended", "failed")
