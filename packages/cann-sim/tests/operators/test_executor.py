"""Life of prepared calls, kernels that do nothing, and what asks for a workspace."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

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


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_null_kernels_do_nothing_but_validate() -> None:
    done = run(NULL_KERNELS, CANN_SIM_KERNELS="null")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_every_task_queue_gives_the_same_values(queue: str) -> None:
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
    done = run(code, TASK_QUEUE_ENABLE=queue)
    assert done.returncode == 0, done.stderr
    printed = [float(v) for v in done.stdout.strip().splitlines()[-1].strip("[]").split(",")]
    assert printed == pytest.approx(expected, abs=1e-3)


def resident_kilobytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def test_long_loop_does_not_grow_the_process() -> None:
    values = torch.ones(64, dtype=torch.bfloat16).npu()
    gamma = torch.ones(64, dtype=torch.bfloat16).npu()
    indices = torch.arange(8).npu()

    def step() -> None:
        result = torch_npu.npu_rms_norm(values.view(1, 64) + 1, gamma)[0]
        torch.cat([result, result]).index_select(1, indices).sum()

    for _ in range(300):
        step()
    torch.npu.synchronize()
    gc.collect()
    before = resident_kilobytes()
    for _ in range(3000):
        step()
    torch.npu.synchronize()
    gc.collect()
    # Five executors of at least 500 bytes each a step would be 7 MB.
    assert resident_kilobytes() - before < 4096


def test_refused_call_leaks_nothing_and_leaves_the_device_usable() -> None:
    values, gamma = torch.ones(2, 8).npu(), torch.ones(4).npu()
    for _ in range(200):
        with pytest.raises(RuntimeError, match="gamma"):
            torch_npu.npu_rms_norm(values, gamma)
    assert values.sum().item() == 16


def test_workspace_that_is_too_small_is_refused() -> None:
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
    done = run(code, TASK_QUEUE_ENABLE="0")
    assert done.returncode != 0
    assert "expected a workspace of at least 1024 bytes, found 16" in done.stderr
