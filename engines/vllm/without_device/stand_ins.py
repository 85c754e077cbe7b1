"""What simulated CANN cannot run of vLLM and vllm-ascend 0.23.0, and what stands for it.

Nothing of the engine is edited: `set_environment` and `prepare` are called before vLLM is imported,
`install` before an engine is made. Each line says why it is there.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any

import torch
from engines.running import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {
    # One process, so that what is counted and replaced here is that of the worker.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # npugraph_ex of torch_npu 2.13 gives these caches nothing that they can keep.
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    # The checkpoint is local, and there is no network to report to.
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def set_environment() -> None:
    """Set the engine's environment variables."""
    os.environ.update(SETTINGS)


def prepare() -> object:
    """Declare what importing the engine needs; keep the result alive."""
    return torchvision_operators.declare()


def install() -> None:
    """Replace, in the engine's modules, what the simulator cannot run."""
    # The compiled operators of vllm-ascend link to CANN's own C++ libraries. The engine has a
    # switch for hosts without them, set when the import fails; Dynamo would trace that import.
    utils = importlib.import_module("vllm_ascend.utils")
    utils._CUSTOM_OP_ENABLED = False
    inspect_models_here()
    # A kernel of Triton-Ascend.
    block_table = importlib.import_module("vllm_ascend.worker.block_table")
    block_table._compute_slot_mapping_kernel = SlotMapping()
    choose_experts_by_torch_npu()
    make_contiguous_beside_windows()


def choose_experts_by_torch_npu() -> None:
    """Make the engine use torch_npu's operators to choose experts and sort tokens by them.

    On the SoC that is simulated it takes compiled operators of its own, as above; for another it
    has what it calls here.
    """
    # In the engine's own order: its modules import each other.
    importlib.import_module("vllm_ascend.worker.worker")
    device = importlib.import_module("vllm_ascend.device.device_op")
    for name in ("moe_gating_top_k", "npu_moe_init_routing"):
        call = getattr(device.A5DeviceAdaptor, name)
        setattr(device.DeviceOperator, name, staticmethod(call))


def make_contiguous_beside_windows() -> None:
    """Make keys and values contiguous in prefill with a sliding window.

    The operator's document requires that, and the simulator rejects others. The engine makes them
    contiguous if there is no window; with one it passes a part of the fused projection.
    """
    attention = importlib.import_module("vllm_ascend.attention.attention_v1")
    impl = attention.AscendAttentionBackendImpl
    forward = impl.forward_fused_infer_attention

    def forward_contiguous(self: Any, query: Any, key: Any, value: Any, *given: Any) -> Any:
        if self.sliding_window is not None:
            key, value = key.contiguous(), value.contiguous()
        return forward(self, query, key, value, *given)

    impl.forward_fused_infer_attention = forward_contiguous


def inspect_models_here() -> None:
    """Make the engine inspect a model's class in this process.

    It starts another one for that, which would lack what `prepare` declared; once it has an answer
    it keeps that in the home folder.
    """
    registry = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda inspect: inspect()


class SlotMapping:
    """Replaces `_compute_slot_mapping_kernel` of vLLM, on one rank, by operators of torch."""

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        """Return the launch: a program for each sequence, and one for the padding."""
        return functools.partial(self._map, grid[0] - 1)

    @staticmethod
    def _map(
        num_sequences: int,
        num_tokens: int,
        max_num_tokens: int,
        starts: torch.Tensor,
        positions: torch.Tensor,
        table: torch.Tensor,
        _stride: int,
        block_size: int,
        slots: torch.Tensor,
        **constants: int,
    ) -> None:
        ends = starts[1 : num_sequences + 1]
        token = torch.arange(num_tokens, device=slots.device, dtype=ends.dtype)
        sequence = (token[:, None] >= ends[None, :]).sum(1)
        # Tokens after the last sequence keep their values.
        inside = sequence < num_sequences
        block = torch.div(positions, block_size, rounding_mode="floor")
        row = sequence.clamp(max=num_sequences - 1)
        number = table[row, torch.where(inside, block, 0)].to(slots.dtype)
        found = number * block_size + positions - block * block_size
        slots[:num_tokens] = torch.where(inside, found, slots[:num_tokens])
        slots[num_tokens:max_num_tokens] = constants["PAD_ID"]
