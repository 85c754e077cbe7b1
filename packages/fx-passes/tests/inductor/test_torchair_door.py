"""A pipeline as custom pass of torchair, by the entry of the torch_npu wheel."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import cann_sim
cann_sim.activate()
import torch, torch_npu, torchair
from fx_passes.inductor import PostGradPasses
from fx_passes.testing import random_tensors

def layer(x, residual, weight):
    total = x + residual
    return torch.ops.npu.npu_rms_norm(total, weight, 1e-5)[0], total

config = torchair.CompilerConfig()
config.mode = "reduce-overhead"
config.debug.run_eagerly = True
passes = PostGradPasses()
setattr(config, sys.argv[1], passes)
given = random_tensors((4, 64), (4, 64), (64,), device="npu")
run = torch.compile(layer, backend=torchair.get_npu_backend(compiler_config=config))
with torch.no_grad():
    for own, theirs in zip(run(*given), layer(*given), strict=True):
        torch.testing.assert_close(own.cpu(), theirs.cpu())
print("fused", passes.report.match_counts()["fuse_add_rms_norm"])
"""


@pytest.mark.parametrize("where", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_torchair_runs_it_as_its_custom_pass(where: str) -> None:
    # A process of its own: where npugraph_ex is imported, torchair cannot be.
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, where]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1:] == ["fused 1"], done.stderr
