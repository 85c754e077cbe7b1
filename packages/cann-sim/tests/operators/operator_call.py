"""Calls of an operator by its C interface, for those that torch_npu leaves to other versions."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
import torch_npu

from operators.c_arguments import FORMAT_ND, FORMAT_NZ, Arguments, Description, Handle

if TYPE_CHECKING:
    from collections.abc import Callable

Argument = (
    torch.Tensor
    | list[torch.Tensor]
    | tuple[int, ...]
    | float
    | bytes
    | ctypes.c_float
    | ctypes.c_int8
    | None
)

DATA_TYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int64: 9,
    torch.bfloat16: 27,
}
"""Numbers of aclDataType."""

PLAIN: dict[type, Callable[[Any], object]] = {
    bool: ctypes.c_bool,
    int: ctypes.c_int64,
    float: ctypes.c_double,
}


class Single(ctypes.c_float):
    """A C float; a plain c_float represents a scalar object."""


def nz_sizes(matrices: torch.Tensor) -> tuple[int, ...]:
    """Return the sizes of the blocks of matrices of 8 or 16 bits in the NZ format."""
    *batch, rows, columns = matrices.shape
    width = 32 // matrices.element_size()
    return (*batch, -(-columns // width), -(-rows // 16), 16, width)


def described(tensor: torch.Tensor) -> Description:
    """Return the descriptor of a tensor in device memory."""
    storage = tensor.untyped_storage()
    blocks = torch_npu.get_npu_format(tensor) == FORMAT_NZ
    return Description(
        type=DATA_TYPES[tensor.dtype],
        sizes=tuple(tensor.shape),
        strides=tensor.stride(),
        format=FORMAT_NZ if blocks else FORMAT_ND,
        storage=nz_sizes(tensor) if blocks else (storage.nbytes() // tensor.element_size(),),
        offset=int(tensor.storage_offset()),
        address=storage.data_ptr(),
    )


def make(arguments: Arguments, argument: Argument) -> object:
    """Return an argument: a c_float is a scalar, a tuple an int array, bytes a text.

    A `Single` is passed as it is.
    """
    made: object = argument
    if isinstance(argument, (bool, int, float)):
        made = PLAIN[type(argument)](argument)
    elif isinstance(argument, ctypes.c_float) and not isinstance(argument, Single):
        made = arguments.scalar(argument)
    elif isinstance(argument, tuple):
        made = arguments.integers(argument)
    elif isinstance(argument, torch.Tensor):
        made = arguments.tensor(described(argument))
    elif isinstance(argument, list):
        made = arguments.tensors([described(item) for item in argument])
    return made


def call_operator(name: str, *arguments: Argument) -> None:
    """Prepare and launch the operator on the current stream, and wait for it."""
    torch_npu.npu.synchronize()
    library = ctypes.CDLL("libopapi.so")
    size, executor = ctypes.c_uint64(), Handle()
    with ExitStack() as owned:
        maker = Arguments(library, owned)
        made = [make(maker, argument) for argument in arguments]
        prepare = library[f"{name}GetWorkspaceSize"]
        assert prepare(*made, ctypes.byref(size), ctypes.byref(executor)) == 0, name
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device="npu")
        stream = Handle(torch_npu.npu.current_stream().npu_stream)
        status = library[name](Handle(workspace.data_ptr()), size, executor, stream)
        assert status == 0, name
        torch_npu.npu.synchronize()
