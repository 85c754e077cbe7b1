"""What simulated CANN cannot run of SGLang 0.5.23, and what stands for it.

Nothing of the engine is edited: `set_environment` is called in the process that starts all others,
`prepare` in each process before it imports the engine, `install` before the engine's scheduler
starts. Each line says why it is there.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from engines.running import torchvision_operators
from engines.sglang.without_device import lora_kernels

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SETTINGS = {
    # The engine takes a torch without torch_npu for one without a device. The sessions leave this
    # out for what has to run without either.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    # Nothing here compiles the engine's Triton kernels; they run as Python.
    "TRITON_INTERPRET": "1",
    # An engine whose scheduler failed waits a minute for what CUDA writes of it.
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    # The checkpoint is local.
    "HF_HUB_OFFLINE": "1",
    # The prompts of a call reach the scheduler at once: the same batches in each run.
    "SGLANG_ENABLE_COLOCATED_BATCH_GEN": "1",
}


def set_environment() -> None:
    """Set the engine's environment variables."""
    os.environ.update(SETTINGS)


def prepare() -> object:
    """Make the engine importable in this process; keep the result alive."""
    # torch_npu.contrib.transfer_to_npu, which the engine imports, makes the names of torch.cuda
    # those of torch.npu. Dynamo 2.13 lists both, finds an object twice and raises; the engine logs
    # that and continues with nearly no models. There is no CUDA here that the names could mean.
    for rules in importlib.import_module("torch._dynamo.trace_rules").torch_name_rule_map:
        for name in [name for name in rules if name.startswith("torch.cuda.")]:
            del rules[name]
    # Kernels of sgl-kernel-npu are on no index, and compiled for an NPU.
    if not any(isinstance(finder, KernelPackage) for finder in sys.meta_path):
        sys.meta_path.insert(0, KernelPackage())
    return torchvision_operators.declare(), declare_operators()


def install() -> None:
    """Replace, by the engine's own hooks, what the simulator cannot run of it."""
    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    # A Triton kernel inside the captured graph, where the interpreter cannot read the device.
    registry.HookRegistry.register(
        "sglang.kernels.ops.activation.softcap.cast_to_float32_logits",
        cast_to_float32_logits,
        registry.HookType.REPLACE,
    )
    # The same, if ranks have their own sequences.
    registry.HookRegistry.register(
        "sglang.srt.layers.dp_attention.memcpy", copy_rows, registry.HookType.REPLACE
    )
    # An operator of sgl-kernel-npu; the engine has the same for other devices in Triton.
    trees = importlib.import_module("sglang.kernels.ops.speculative.spec_tree")
    registry.HookRegistry.register(
        f"{trees.__name__}.build_tree_kernel_efficient_func",
        trees.sgl_build_tree_kernel_triton,
        registry.HookType.REPLACE,
    )


def declare_operators() -> object:
    """Declare operators of sgl-kernel-npu that the engine calls by torch; keep the result alive."""
    library = torch.library.Library("npu", "FRAGMENT")
    arguments = "Tensor rows, Tensor table, Tensor starts, Tensor ends, Tensor(a!) slots"
    library.define(f"cache_loc_update({arguments}) -> ()")
    library.impl("cache_loc_update", cache_loc_update, "PrivateUse1")
    lora_kernels.declare(library)
    return library


def cache_loc_update(
    rows: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Replace the kernel: the cache slots of new tokens, read from the table of each request."""
    spans = zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    found = torch.cat([table[row, start:end] for row, start, end in spans])
    slots[: len(found)].copy_(found)


def verify_tree_greedy(
    *,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    **given: torch.Tensor,
) -> None:
    """Replace the kernel by the engine's own for other devices."""
    trees = importlib.import_module("sglang.kernels.ops.speculative.spec_tree")
    trees.verify_tree_greedy_triton(
        **given,
        retrieve_index=retrive_index,
        retrieve_next_token=retrive_next_token,
        retrieve_next_sibling=retrive_next_sibling,
    )


def cast_to_float32_logits(logits: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Replace the engine's kernel of this name."""
    return output.copy_(logits)


def copy_rows(
    to: torch.Tensor,
    rows: torch.Tensor,
    _dim: int,
    offset: torch.Tensor,
    count: torch.Tensor,
    offset_src: bool,
) -> None:
    """Replace the engine's kernel: copies rows from or to an offset stored on the device."""
    place = torch.arange(len(to), device=to.device)
    source = place + offset if offset_src else place - offset
    inside = (place if offset_src else source) < count
    inside = inside & (source >= 0) & (source < len(rows))
    found = rows[source.clamp(0, len(rows) - 1)]
    to.copy_(torch.where(inside.view(-1, *[1] * (to.ndim - 1)), found, to))


class KernelPackage(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces sgl-kernel-npu: every name can be imported, and some can be called."""

    NAME = "sgl_kernel_npu"
    # The engine has a branch of its own for builds of the package that lack these modules.
    LACKING = ("norm.fused_rope_qk_mqa",)

    def find_spec(self, fullname: str, *_where: object) -> importlib.machinery.ModuleSpec | None:
        """Find the package and each module in it."""
        package, _, module = fullname.partition(".")
        parts = module.split(".")
        # A module that has the name of the function in it is there, and the function is no module.
        is_function = len(parts) > 1 and parts[-1] == parts[-2]
        if package != self.NAME or module in self.LACKING or is_function:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module a `__getattr__` that finds every name."""
        calls: dict[str, Any] = {
            "split_qkv_rmsnorm_rope": split_qkv_rmsnorm_rope,
            "alloc_extend_kernel": AllocExtend(),
            "verify_tree_greedy": verify_tree_greedy,
            "l1_norm": l1_norm,
            "fused_split_qk_norm": fused_split_qk_norm,
        }

        def find(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return calls.get(name) or functools.partial(missing, f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = find


def missing(name: str, *_args: object, **_kwargs: object) -> None:
    """Raise an error that names the missing kernel."""
    raise NotImplementedError(f"{name} has no stand-in on simulated CANN")


def split_qkv_rmsnorm_rope(
    qkv: torch.Tensor,
    sin: torch.Tensor,
    cos: torch.Tensor,
    q_size: int,
    kv_size: int,
    head_dim: int,
    *,
    eps: float = 0.0,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    q_bias: torch.Tensor | None = None,
    k_bias: torch.Tensor | None = None,
    is_neox_style: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Replace the kernel: norms of queries and keys by head, if any, and rotation by halves."""
    if not is_neox_style:
        raise NotImplementedError("split_qkv_rmsnorm_rope stands for rotation by halves alone")
    q, k, v = qkv.split([q_size, kv_size, kv_size], dim=-1)
    sin, cos = (each.reshape(-1, 1, head_dim) for each in (sin, cos))

    def turned(
        x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> torch.Tensor:
        heads = x.reshape(-1, head_dim)
        if weight is not None:
            heads = torch.ops.npu.npu_rms_norm(heads, weight, eps)[0]
        if bias is not None:
            heads = heads + bias
        heads = heads.view(len(x), -1, head_dim)
        first, second = heads.chunk(2, dim=-1)
        rotated = heads * cos + torch.cat((-second, first), dim=-1) * sin
        return rotated.view(len(x), -1).to(x.dtype)

    return turned(q, q_weight, q_bias), turned(k, k_weight, k_bias), v.clone()


def l1_norm(weights: torch.Tensor) -> torch.Tensor:
    """Replace the kernel: the weights of a token's experts, which add up to one, in float32."""
    wide = weights.float()
    return wide / wide.sum(dim=-1, keepdim=True)


def fused_split_qk_norm(
    latent: torch.Tensor,
    q_norm: torch.nn.Module,
    kv_norm: torch.nn.Module,
    q_rank: int,
    kv_rank: int,
    rotary: int,
    *,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Replace the kernel by the code that the engine uses for models that opt out of it."""
    for norm in (q_norm, kv_norm):
        if norm.variance_epsilon != eps:
            raise NotImplementedError("fused_split_qk_norm stands for norms of one epsilon alone")
    q, k, k_rotary = latent.split([q_rank, kv_rank, rotary], dim=-1)
    return q_norm(q), kv_norm(k).unsqueeze(1), k_rotary.unsqueeze(1)


class AllocExtend:
    """Replaces the kernel that finds cache slots for prompts, by the engine's own operators."""

    def __getitem__(self, _grid: tuple[int]) -> Callable[..., None]:
        """Return the launch."""
        return self._allocate

    @staticmethod
    def _allocate(
        prefix_lengths: torch.Tensor,
        lengths: torch.Tensor,
        last: torch.Tensor,
        free_pages: torch.Tensor,
        slots: torch.Tensor,
        _width: int,
        page_size: int,
        *_sizes: int,
    ) -> None:
        paged = importlib.import_module("sglang.srt.mem_cache.allocator.paged")
        paged.alloc_extend_naive(
            prefix_lengths, lengths, last, free_pages, slots, page_size, slots.device
        )
