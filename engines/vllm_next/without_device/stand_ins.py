"""What simulated CANN cannot run of vLLM 0.30.0 and vllm-ascend 0.30.0rc2, and what stands for it.

Nothing of the engine is edited: `prepare` is called before vLLM is imported, `install` before an
engine is made.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, NoReturn

import torch
from engines.vllm.without_device import stand_ins

# What the engine imports, for models that no session runs, from compiled kernels of another wheel.
LINEAR_ATTENTION = (
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "recurrent_gated_delta_rule",
)


def prepare() -> object:
    """Declare what importing the engine needs; keep the result alive."""
    for name in ("fla_npu", "fla_npu.ops", "fla_npu.ops.ascendc"):
        sys.modules[name] = ModuleType(name)
    for name in LINEAR_ATTENTION:
        setattr(sys.modules["fla_npu.ops.ascendc"], name, refuse)
    return stand_ins.prepare()


def refuse(*_args: object, **_options: object) -> NoReturn:
    """Replace an operator that is missing."""
    raise NotImplementedError("linear attention")


def install() -> None:
    """Replace, in the engine's modules, what the simulator cannot run."""
    # As in the stable release; the reasons are in its file.
    utils = importlib.import_module("vllm_ascend.utils")
    utils._CUSTOM_OP_ENABLED = False
    stand_ins.inspect_models_here()
    stand_ins.choose_experts_by_torch_npu()
    stand_ins.make_contiguous_beside_windows()
    block_table = importlib.import_module("vllm_ascend.worker.block_table")
    block_table._compute_slot_mapping_kernel = stand_ins.SlotMapping()
    # Keys and values of a block side by side: the simulated operator takes caches without gaps,
    # as the engine makes them where paged attention may read them.
    importlib.import_module("vllm_ascend.worker.worker")
    for name in ("model_runner_v1", "v2.attn_utils"):
        module = importlib.import_module(f"vllm_ascend.worker.{name}")
        module.requires_contiguous_pa_kv_cache = lambda *_given: True  # type: ignore[attr-defined]
    # Of the compiled operators this norm has no switch.
    layernorm = importlib.import_module("vllm_ascend.ops.layernorm")
    layernorm.AscendRMSNorm.forward_oot = normalise


def let_deepseek_compile() -> None:
    """Rename a method in the code of DeepSeek's forward that one rank of the pipeline never calls.

    vLLM takes the name `update` in compiled code for a write to a buffer, and refuses; the engine's
    forward has it in the branch of a rank that is not the last (docs/upstream/vllm-ascend.md).
    """
    forward = importlib.import_module("vllm_ascend.patch.worker.patch_deepseek_v2")._patched_forward
    code = forward.__code__
    names = tuple("update_" if name == "update" else name for name in code.co_names)
    forward.__code__ = code.replace(co_names=names)


def normalise(
    self: Any, x: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Normalise by torch_npu's operators, after an addition if there is a residual."""
    operators, epsilon = torch.ops.npu, self.variance_epsilon
    if self.bias_loaded:
        raise NotImplementedError("a norm with a bias")
    if residual is None:
        return operators.npu_rms_norm(x, self.weight, epsilon)[0]  # type: ignore[no-any-return]
    x, _, residual = operators.npu_add_rms_norm(x, residual, self.weight, epsilon)
    return x, residual
