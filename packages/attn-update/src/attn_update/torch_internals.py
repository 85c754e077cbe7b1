"""The private names of torch that this package uses; no other file uses any.

Each function says in which versions of torch the name exists and why it is needed. The device
provides what is private to torch_npu: see `attn_update.task_device`.
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

from typing import TYPE_CHECKING

# torch 2.10 to 2.14: these keys select the kernel of an operator.
from torch._C import DispatchKeySet, _dispatch_key_for_device, _parse_dispatch_key

# torch 2.10 to 2.14: the types of operators; one of the second takes functions.
from torch._ops import HigherOrderOperator, OpOverload

# torch 2.10 to 2.14: the base of classes that see every operator; torch documents no other.
from torch.utils._python_dispatch import TorchDispatchMode

# torch 2.10 to 2.14: the leaves of nested arguments, as torch itself nests them.
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    import torch

    # torch 2.10 to 2.14: for annotations, the type of what an operator says of its arguments.
    from torch._C import FunctionSchema

__all__ = [
    "DispatchKeySet",
    "HigherOrderOperator",
    "OpOverload",
    "TorchDispatchMode",
    "implementation_address",
    "kernel_keys_of",
    "schema_of",
    "tree_leaves",
    "version_of",
]


def schema_of(operator: OpOverload) -> FunctionSchema:
    """Return the schema of an operator: `_schema`, torch 2.10 to 2.14; there is no public API."""
    return operator._schema


def kernel_keys_of(device_type: str) -> DispatchKeySet | None:
    """Return the kernel dispatch keys of a device type, ``None`` if torch does not know it.

    Args:
        device_type: For instance ``npu``, which is ``PrivateUse1``.
    """
    key = _parse_dispatch_key(_dispatch_key_for_device(device_type))
    return None if key is None else DispatchKeySet(key)


def implementation_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's C++ object, which is valid as long as the tensor.

    `_cdata`, torch 2.10 to 2.14: what a C++ function with a tensor parameter expects.
    """
    return tensor._cdata


def version_of(tensor: torch.Tensor) -> int | None:
    """Return how often torch saw the storage of a tensor written, None where it does not count.

    `_version`, torch 2.10 to 2.14; tensors that were made in inference mode have none.
    """
    return None if tensor.is_inference() else tensor._version
