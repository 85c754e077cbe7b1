"""torch_npu beside a CUDA build of torch, whose allocator has registered keys of the same names."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cann_sim.inventory.installation import find_installation

INSTALLATION = find_installation()

pytestmark = pytest.mark.skipif(
    not INSTALLATION.is_cuda_build,
    reason=f"torch {INSTALLATION.torch_version} is not built for CUDA",
)

ALLOCATE = """
try:
    print("sum", torch.ones(4, device="npu:0").sum().item(), flush=True)
except (RuntimeError, ValueError) as error:
    print("refused:", error, flush=True)
"""
BEFORE_TORCH = "import cann_sim; cann_sim.activate()\nimport torch, torch_npu\n"
BEGINNINGS = {
    "before torch": BEFORE_TORCH,
    "after torch": "import torch\nimport cann_sim; cann_sim.activate()\nimport torch_npu\n",
    "by the command": "import torch, torch_npu\n",
    "in a child of the command": "import torch, torch_npu\n",
}
PYTHON = (sys.executable, "-c")
COMMAND = (sys.executable, "-m", "cann_sim", "run", "--", *PYTHON)
CHILD = (*COMMAND, "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])")

not_in_these_words = pytest.mark.absent_in_torch_npu(
    "2.10", reason="it reads PYTORCH_NPU_ALLOC_CONF alone, in other words"
)
both_variables = pytest.mark.parametrize(
    "variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"]
)


@pytest.mark.parametrize("way", BEGINNINGS)
def test_torch_npu_is_loaded_with_a_cuda_build(run_python: Any, way: str) -> None:
    programs = {"by the command": COMMAND, "in a child of the command": CHILD}
    done = run_python(BEGINNINGS[way] + ALLOCATE, program=programs.get(way, PYTHON))
    assert "sum 4.0" in done.output, done.errors
    assert done.status == 0


@both_variables
def test_key_of_torch_npu_is_taken(run_python: Any, variable: str) -> None:
    done = run_python(BEFORE_TORCH + ALLOCATE, environment={variable: "base_addr_aligned_kb:8"})
    assert "sum 4.0" in done.output, done.errors


@not_in_these_words
@both_variables
def test_value_of_a_key_of_torch_npu_is_read(run_python: Any, variable: str) -> None:
    done = run_python(BEFORE_TORCH + ALLOCATE, environment={variable: "base_addr_aligned_kb:99"})
    assert "refused:" in done.output, done.output + done.errors
    assert "base_addr_aligned_kb" in done.output


@not_in_these_words
@both_variables
def test_value_of_a_key_of_all_back_ends_is_read(run_python: Any, variable: str) -> None:
    done = run_python(BEFORE_TORCH + ALLOCATE, environment={variable: "max_split_size_mb:1"})
    assert "refused:" in done.output, done.output + done.errors
    assert "max_split_size_mb" in done.output


@not_in_these_words
@both_variables
def test_unknown_key_is_refused(run_python: Any, variable: str) -> None:
    done = run_python(BEFORE_TORCH + ALLOCATE, environment={variable: "no_such_key:1"})
    assert "Unrecognized key 'no_such_key'" in done.output, done.output + done.errors


@not_in_these_words
def test_key_of_cuda_is_refused_as_with_a_cpu_build(run_python: Any) -> None:
    environment = {"PYTORCH_NPU_ALLOC_CONF": "release_lock_on_cudamalloc:True"}
    done = run_python(BEFORE_TORCH + ALLOCATE, environment=environment)
    assert "Unrecognized key 'release_lock_on_cudamalloc'" in done.output, done.errors
