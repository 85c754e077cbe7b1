"""The private names of torch that this package uses.

Each function says in which versions of torch the name exists and why it is needed. All private
names of torch_npu are in `npu_graph_runtime.devices.npu`.
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

import ctypes
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

# torch 2.10 to 2.14: the type of what an operator says of its arguments and results.
from torch._C import FunctionSchema

# torch 2.10 to 2.14: the type of operators.
from torch._ops import OpOverload

# torch 2.10 to 2.14: the stack of dispatch modes.
from torch.utils import _python_dispatch

# torch 2.10 to 2.14: a block in which dispatch modes see no operator.
from torch.utils._mode_utils import no_dispatch

# torch 2.10 to 2.14: the base of classes that see every operator; torch documents no other.
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

__all__ = [
    "FunctionSchema",
    "OpOverload",
    "TorchDispatchMode",
    "abandon_dispatch_mode",
    "base_of",
    "end_cuda_allocation",
    "given_arguments",
    "has_kernel",
    "layout_guard",
    "negated_view",
    "no_dispatch",
    "out_of_tree_backend",
    "run_python_kernel",
    "schema_of",
    "storage_owners",
    "tensor_offset",
]


_DISPATCH_MODE_FLAGS = MappingProxyType(
    {
        "old_dispatch_mode_flags": "_is_in_torch_dispatch_mode",
        "old_non_infra_dispatch_mode_flags": "_is_in_non_infra_torch_dispatch_mode",
        "old_without_ignore_compile_internals_dispatch_mode_flags": (
            "_is_in_any_mode_without_ignore_compile_internals"
        ),
    }
)


# torch 2.10 to 2.14: the name of the backend that is not part of torch; it has only a setter.
def out_of_tree_backend() -> str:
    """Return the device type of torch's out-of-tree backend: ``npu`` once torch_npu is imported."""
    return torch._C._get_privateuse1_backend_name()


def schema_of(operator: OpOverload[..., Any]) -> FunctionSchema:
    """Return the schema of an operator: `_schema`, torch 2.10 to 2.14; there is no public API."""
    return operator._schema


def given_arguments(
    operator: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield (argument of the schema, value) for each argument that was given; see `schema_of`."""
    for index, argument in enumerate(operator._schema.arguments):
        if index < len(args) and not argument.kwarg_only:
            yield argument, args[index]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def has_kernel(operator: OpOverload[..., Any], key: str) -> bool:
    """Return whether an operator has a kernel for exactly this dispatch key.

    `torch._C._dispatch_has_kernel_for_dispatch_key`, torch 2.10 to 2.14: there is no public API.
    """
    name = operator.name()  # type: ignore[no-untyped-call]
    found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    return found


def layout_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """Return a function that checks whether the type and layout of tensors equal those of these.

    It compares shape, strides, dtype, device, gradients and dispatch keys, so torch's modes count
    too, but not addresses. It keeps no tensor alive, and takes a third of the time of Python.

    `torch._C._dynamo.guards.TensorGuards`, torch 2.10 to 2.14, with which Dynamo compares inputs.

    Returns:
        ``None`` if a tensor occurs twice, which its check rejects, or if a later torch
        has no such class.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    make = getattr(guards, "TensorGuards", None)
    if make is None or len({id(tensor) for tensor in tensors}) < len(tensors):
        return None
    check: Callable[..., bool] = make(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    ).check
    return check


def abandon_dispatch_mode(mode: TorchDispatchMode) -> None:
    """Remove a mode from torch's stack, as often as it is there, after an exception.

    An interrupt may occur while a mode is entered or left, because that is Python code. Its own
    ``__exit__`` then does not know the state. It keeps the former values of some flags of torch's
    module.

    `_get_current_dispatch_mode_stack`, `_pop_mode` and the flags: torch 2.10 to 2.14.
    """
    for kept, flag in _DISPATCH_MODE_FLAGS.items():
        before = getattr(mode, kept, None)
        if before:
            setattr(_python_dispatch, flag, before[0])
            tell = getattr(_python_dispatch, f"set{flag}".replace("_any_", "_"), None)
            if tell is not None:
                tell(before[0])
            before.clear()
    while any(each is mode for each in _python_dispatch._get_current_dispatch_mode_stack()):
        _python_dispatch._pop_mode()


def tensor_offset() -> int | None:
    """Return the offset in bytes of torch's own tensor in a tensor's Python object.

    `Tensor._cdata`, torch 2.10 to 2.14, is the address at that offset. It is 16 or 24, depending on
    how torch stores its tensor. ``None`` if a later torch stores it elsewhere.
    """
    tensor = torch.zeros(1)
    address = getattr(tensor, "_cdata", None)
    for offset in range(object.__basicsize__, type(tensor).__basicsize__, 8):
        word = ctypes.c_void_p.from_address(id(tensor) + offset).value
        if word is not None and word == address:
            return offset
    return None


def run_python_kernel(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, device: str | None = None
) -> Callable[[], Any] | None:
    """Return a function that runs an operator's kernel and offers its calls to dispatch modes.

    `torch.library._impls` (`namespace/name/key` of each kernel registered by `torch.library`) and
    `torch._C._dispatch_key_for_device`, torch 2.10 to 2.14: there is no public API.

    Args:
        operator: the operator.
        args: its positional arguments.
        kwargs: its keyword arguments.
        device: device type of the kernel; by default that of the arguments.

    Returns:
        ``None`` if the kernel is not Python, or if a later torch does not tell.
    """
    devices = [value.device.type for value in args if isinstance(value, torch.Tensor)]
    if not isinstance(operator, OpOverload) or not (device or devices):
        return None
    if operator.namespace in {"aten", "prims", "prim"}:
        return None
    schema = operator._schema
    overload = f".{schema.overload_name}" if schema.overload_name else ""
    name = schema.name.replace("::", "/") + overload
    device_key = torch._C._dispatch_key_for_device(device or devices[0])
    known: Collection[str] = getattr(torch.library, "_impls", ())
    if not any(f"{name}/{key}" in known for key in (device_key, "CompositeExplicitAutograd")):
        return None
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device_key))
    return lambda: operator.redispatch(keys, *args, **kwargs)


def end_cuda_allocation(index: int, pool: object) -> None:
    """End what a capture began in torch.cuda's allocator, if the device rejected the capture.

    `torch._C._cuda_endAllocateToPool`, torch 2.10 to 2.14 with CUDA. `CUDAGraph.capture_end` calls
    it only after a successful capture. It raises if nothing is open.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end is not None:
        end(index, pool)


def storage_owners(tensor: torch.Tensor) -> int:
    """Return the number of tensors and Python storage objects that refer to a tensor's memory.

    `torch._C._storage_Use_Count`, torch 2.10 to 2.14, which torch's graph trees also use: no public
    API tells whether memory is shared.
    """
    storage = tensor.untyped_storage()
    count: int = torch._C._storage_Use_Count(storage._cdata)
    return count - 1


def negated_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view that reads as the negative: `torch._neg_view`, torch 2.10 to 2.14."""
    return torch._neg_view(tensor)


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that a tensor is a view of: `_base`, torch 2.10 to 2.14; no public API."""
    return tensor._base
