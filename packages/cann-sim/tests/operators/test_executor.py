"""Lifetime of prepared calls, kernels that do nothing, and calls that need a workspace."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_npu

NULL_KERNELS = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=False)
values = torch.full((4,), 3.0).npu()
assert (values + 1).cpu().tolist() != [4.0] * 4, "the kernel ran"
assert values.nonzero().shape[0] == 0
try:
    torch_npu.npu_rms_norm(torch.empty(2, 8, device="npu"), torch.empty(4, device="npu"))
except RuntimeError as error:
    assert "argument 'gamma'" in str(error), error
else:
    raise AssertionError("validation did not happen")
print("done")
"""


def test_null_kernels_do_nothing_but_validate(run_forked: Any) -> None:
    done = run_forked(NULL_KERNELS, environment={"CANN_SIM_KERNELS": "null"})
    assert done.status == 0, done.errors
    assert done.output.endswith("done\n")


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_every_task_queue_gives_the_same_values(run_forked: Any, queue: str) -> None:
    code = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=False)
torch.npu.config.allow_internal_format = False
x = torch.arange(12.).view(3, 4).npu()
y = torch_npu.npu_rms_norm(x + 1, torch.ones(4, device="npu"))[0]
print([round(v, 4) for v in (y @ x.t()).flatten().tolist()])
"""
    values = torch.arange(12.0).view(3, 4)
    shifted = values + 1
    norm = shifted * (shifted.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    expected = (norm @ values.t()).flatten().tolist()
    done = run_forked(code, environment={"TASK_QUEUE_ENABLE": queue})
    assert done.status == 0, done.errors
    printed = [float(v) for v in done.output.strip().splitlines()[-1].strip("[]").split(",")]
    assert printed == pytest.approx(expected, abs=1e-3)


def resident_kilobytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def test_long_loop_does_not_grow_the_process() -> None:
    values = torch.ones(64, dtype=torch.bfloat16).to("npu")
    gamma = torch.ones(64, dtype=torch.bfloat16).to("npu")
    indices = torch.arange(8).to("npu")

    def step() -> None:
        result = torch_npu.npu_rms_norm(values.view(1, 64) + 1, gamma)[0]
        torch.cat([result, result]).index_select(1, indices).sum()

    def settle(steps: int) -> int:
        for index in range(steps):
            step()
            if index % 20 == 0:
                torch_npu.npu.synchronize()
        torch_npu.npu.synchronize()
        gc.collect()
        return resident_kilobytes()

    before = settle(1000)
    # Five executors of at least 500 bytes each a step would be 12 MB.
    assert settle(5000) - before < 4096


def test_refused_call_leaks_nothing_and_leaves_the_device_usable() -> None:
    values, gamma = torch.ones(2, 8).to("npu"), torch.ones(4).to("npu")
    for _ in range(200):
        with pytest.raises(RuntimeError, match="gamma"):
            torch_npu.npu_rms_norm(values, gamma)
    assert values.sum().item() == 16


def test_workspace_that_is_too_small_is_refused(run_forked: Any) -> None:
    code = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=False)
q = torch.ones(1, 1, 128, dtype=torch.bfloat16, device="npu")
kv = torch.ones(1, 128, 128, dtype=torch.bfloat16, device="npu")
torch_npu.npu_fused_infer_attention_score.out(
    q, kv, kv, block_table=torch.zeros(1, 1, dtype=torch.int32, device="npu"), block_size=128,
    actual_seq_lengths=[1], actual_seq_lengths_kv=[5], num_heads=1, num_key_value_heads=1,
    input_layout="TND", workspace=torch.empty(16, dtype=torch.uint8, device="npu"),
    out=[torch.empty_like(q), torch.empty(1, device="npu")],
)
torch.npu.synchronize()
"""
    done = run_forked(code, environment={"TASK_QUEUE_ENABLE": "0"})
    assert done.status != 0
    assert "expected a workspace of at least 1024 bytes, found 16" in done.errors
