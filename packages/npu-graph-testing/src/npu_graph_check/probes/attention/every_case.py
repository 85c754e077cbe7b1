"""Every kind of attention as engines call it, captured and updated, against the eager operator."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Literal

import torch

from attn_update import UpdateLane
from npu_graph_testing.attention.cases import CaseModel, all_cases, all_kinds

if TYPE_CHECKING:
    from npu_graph_check.probe import Look
    from npu_graph_runtime import CudaDevice, NpuDevice
    from npu_graph_testing.attention.cases import AttentionCase

_STEPS = 3
_EQUAL = "bitwise as the eager operator"


def every_case(look: Look, updater: Literal["operators", "kernels", "native"]) -> None:
    """Capture each case, and step it with lengths that change, by one updater."""
    device = look.opened
    lane = UpdateLane(device, updater=updater)
    for case in all_cases():
        look.doing(f"updating the case {case.name}")
        try:
            seen = _seen(case, device, lane)
        except RuntimeError as error:
            seen = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        look.expect(case.name, seen, _EQUAL)
    lane.close()


def _seen(case: AttentionCase, device: NpuDevice | CudaDevice, lane: UpdateLane) -> str:
    random = Random(0)  # noqa: S311 - lengths of a test
    model = CaseModel(device=device, case=case, kinds=all_kinds())
    model.capture(*case.keys)
    for number in range(_STEPS):
        for key in case.keys:
            drawn = model.draw(random, key)
            outputs = model.valid(drawn.step, model.run(lane, drawn))
            device.synchronize()
            expected = model.valid(drawn.step, model.expected(drawn))
            device.synchronize()
            for layer, (out, value) in enumerate(zip(outputs, expected, strict=True)):
                if not torch.equal(out.cpu(), value.cpu()):
                    difference = (out.float() - value.float()).abs().max().item()
                    return f"step {number}, key {key}, layer {layer}: off by {difference:g}"
    return _EQUAL
