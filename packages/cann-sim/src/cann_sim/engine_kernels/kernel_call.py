"""Registration and calls of the kernels in ``native/engine_kernels``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from cann_sim.activation import is_active

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_LIBRARY = "libcann_sim_engine_kernels.so"


def register_operators(
    namespace: str,
    operators: Mapping[str, tuple[str, Callable[..., object], Callable[..., object]]],
) -> None:
    """Give the simulated device operators of an engine, for as long as the process lasts.

    Does nothing where the simulator is not loaded, or where the engine has registered the last one.

    Args:
        namespace: of ``torch.ops``.
        operators: schema, kernel and fake kernel by name.
    """
    *_, last = operators
    if not is_active() or hasattr(getattr(torch.ops, namespace), last):
        return
    for name, (schema, kernel, fake) in operators.items():
        qualified = f"{namespace}::{name}"
        torch.library.define(qualified, schema)
        torch.library.impl(qualified, "npu", kernel)
        torch.library.register_fake(qualified, fake)


def launch(operator: str, symbol: str, device: torch.device, *arguments: object) -> None:
    """Launch a kernel on the current stream of a device.

    Args:
        operator: what is launched, in errors.
        symbol: the function of the library that launches it.
        device: the simulated device.
        arguments: of the function, as ctypes.

    Raises:
        RuntimeError: The simulated device answered with a code.
    """
    library = ctypes.CDLL(_LIBRARY)
    code = getattr(library, symbol)(
        # Reading the handle waits until torch_npu's queue has handed over what was launched before.
        ctypes.c_void_p(torch.get_device_module("npu").current_stream(device).npu_stream),
        *arguments,
    )
    if code != 0:
        library.aclGetRecentErrMsg.restype = ctypes.c_char_p
        reason = (library.aclGetRecentErrMsg() or b"without a reason").decode()
        raise RuntimeError(f"launching {operator}: the simulated device answered {code}: {reason}")


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    """Return where a tensor is; a null pointer for none."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def require_dense(
    operator: str,
    name: str,
    tensor: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Refuse a tensor of another shape, dtype or layout than a kernel reads.

    Raises:
        ValueError: The tensor is not as expected.
    """
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(
            f"launching {operator}: expected {name!r} to be {dtype} {list(shape)}, densely, "
            f"found {tensor.dtype} {list(tensor.shape)} with strides {list(tensor.stride())}"
        )


def require_value(operator: str, name: str, found: object, expected: Sequence[object]) -> None:
    """Refuse a value that a kernel does not simulate.

    Raises:
        ValueError: The value is not among the expected ones.
    """
    if found not in expected:
        raise ValueError(
            f"launching {operator}: expected {name!r} to be "
            f"{' or '.join(map(repr, expected))}, found {found!r}; other values are not simulated"
        )
