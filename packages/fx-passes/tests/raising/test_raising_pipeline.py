"""The pipeline as a value, and in a process without torch_npu."""

from __future__ import annotations

import os
import subprocess
import sys

from fx_passes.raising import raising_pipeline

_WITHOUT_TORCH_NPU = """
import torch
from torch.nn import functional
from fx_passes.raising import raise_model
from fx_passes.testing import capture_graph

def function(x, mask):
    shared = torch.logical_not(mask)
    return functional.silu(x) * x.masked_fill(shared, 0), torch.logical_not(mask)

module = capture_graph(function, [torch.ones(4, 4), torch.ones(4, 4, dtype=torch.bool)])
(site,) = raise_model(module).report.left()
print(site.reason)
"""


def run(program: str) -> str:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_pipeline_without_torch_npu_leaves_everything_with_the_reason() -> None:
    reason = run(_WITHOUT_TORCH_NPU)

    assert reason.startswith("this process has no operator npu::npu_swiglu: import torch_npu")


def test_pipeline_hash_is_that_of_another_process() -> None:
    # The operators that a process has are part of the hash; other tests define some in this one.
    program = "from fx_passes.raising import raising_pipeline; print(raising_pipeline().hash())"

    assert run(program) == run(program)
    assert raising_pipeline().without("raise_swiglu").hash() != raising_pipeline().hash()


def test_pipeline_keeps_the_order_that_rules_need() -> None:
    names = raising_pipeline().names()

    assert names.index("fuse_swiglu") < names.index("raise_swiglu")
    assert names.index("raise") < names.index("npu_fusions") < names.index("share_equal_calls")


def test_exact_pipeline_raises_nothing() -> None:
    assert not [name for name in raising_pipeline().exact().names() if name.startswith("raise_")]
