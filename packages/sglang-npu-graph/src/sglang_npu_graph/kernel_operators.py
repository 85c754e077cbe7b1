"""Kernels that the engine launches beside torch's dispatcher, as operators while a call is traced.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "sglang_npu_graph"

KERNELS = MappingProxyType(
    {
        "sgl_kernel_npu.norm.split_qkv_rmsnorm_rope.split_qkv_rmsnorm_rope": (
            "(Tensor qkv, Tensor sin, Tensor cos, int q_size, int kv_size, int head_dim, *, "
            "float eps=0., Tensor? q_weight=None, Tensor? k_weight=None, Tensor? q_bias=None, "
            "Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
        ),
        "sglang.kernels.ops.activation.softcap.cast_to_float32_logits": (
            "(Tensor logits, Tensor(a!) output) -> ()"
        ),
    }
)
"""The functions that launch them, with the schemas of the operators: what is written is said."""


class KernelOperator:
    """Stands around a function that launches a kernel.

    Args:
        target: Its dotted name.
        schema: Of the operator; one that returns nothing writes its second argument.
    """

    def __init__(self, target: str, schema: str) -> None:
        self.__qualname__ = name = target.rpartition(".")[2]
        # Torch has no types for it; the operator is there as long as it is.
        library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(f"{name}{schema}")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        self._library = library
        self._operator = getattr(getattr(torch.ops, NAMESPACE), name)
        self._writes_second = schema.endswith("-> ()")
        self._launch: Callable[..., Any] | None = None

    def __call__(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Launch, and leave an operator in the graph that is being traced, if there is one."""
        if get_proxy_mode() is None:
            return original(*args, **kwargs)
        self._launch = original
        result = self._operator(*args, **kwargs)
        # The function returns what it writes, and an operator must not.
        return args[1] if self._writes_second else result

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._launch is None:
            raise RuntimeError(f"running {self._operator}: it is in no graph that was traced")
        result = self._launch(*args, **kwargs)
        return None if self._writes_second else result
