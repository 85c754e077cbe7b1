"""Calls of an operator by its C interface, for those that torch_npu leaves to other versions."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
import torch_npu

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
FORMAT_ND = 2
FORMAT_NZ = 29


class Single(ctypes.c_float):
    """A C float; a plain c_float stands for a scalar object."""


Handle = ctypes.c_void_p


def integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)


def nz_sizes(matrices: torch.Tensor) -> list[int]:
    """Return the sizes of the blocks of matrices of 8 or 16 bits in the NZ format."""
    *batch, rows, columns = matrices.shape
    width = 32 // matrices.element_size()
    return [*batch, -(-columns // width), -(-rows // 16), 16, width]


class Arguments:
    """Makes what the C interface takes, and destroys it with the stack it is given."""

    def __init__(self, library: ctypes.CDLL, owned: ExitStack) -> None:
        self._library = library
        self._owned = owned

    def _create(self, kind: str, *parts: object) -> Handle:
        create = self._library[f"aclCreate{kind}"]
        create.restype = Handle
        made = Handle(create(*parts))
        if kind != "Tensor":
            self._owned.callback(self._library[f"aclDestroy{kind}"], made)
        return made

    def _tensor(self, tensor: torch.Tensor) -> Handle:
        storage = tensor.untyped_storage()
        blocks = torch_npu.get_npu_format(tensor) == FORMAT_NZ
        sizes = nz_sizes(tensor) if blocks else [storage.nbytes() // tensor.element_size()]
        return self._create(
            "Tensor",
            integers(tensor.shape),
            ctypes.c_uint64(tensor.dim()),
            DATA_TYPES[tensor.dtype],
            integers(tensor.stride()),
            ctypes.c_int64(int(tensor.storage_offset())),
            FORMAT_NZ if blocks else FORMAT_ND,
            integers(sizes),
            ctypes.c_uint64(len(sizes)),
            Handle(storage.data_ptr()),
        )

    def make(self, argument: Argument) -> object:
        """Return an argument: a c_float is a scalar, a tuple an int array, bytes a text.

        A `Single` is passed as it is.
        """
        made: object = argument
        if isinstance(argument, (bool, int, float)):
            made = PLAIN[type(argument)](argument)
        elif isinstance(argument, ctypes.c_float) and not isinstance(argument, Single):
            made = self._create("Scalar", ctypes.byref(argument), DATA_TYPES[torch.float32])
        elif isinstance(argument, tuple):
            made = self._create("IntArray", integers(argument), ctypes.c_uint64(len(argument)))
        elif isinstance(argument, torch.Tensor):
            made = self._tensor(argument)
            self._owned.callback(self._library.aclDestroyTensor, made)
        elif isinstance(argument, list):
            # A list owns its tensors.
            members = (Handle * len(argument))(*[self._tensor(item) for item in argument])
            made = self._create("TensorList", members, ctypes.c_uint64(len(argument)))
        return made


def call_operator(name: str, *arguments: Argument) -> None:
    """Prepare and launch the operator on the current stream, and wait for it."""
    torch_npu.npu.synchronize()
    library = ctypes.CDLL(
        next(
            str(path)
            for path in cann_sim.build().library_paths("value")
            if path.name == "libopapi.so"
        )
    )
    size, executor = ctypes.c_uint64(), Handle()
    with ExitStack() as owned:
        maker = Arguments(library, owned)
        made = [maker.make(argument) for argument in arguments]
        prepare = library[f"{name}GetWorkspaceSize"]
        assert prepare(*made, ctypes.byref(size), ctypes.byref(executor)) == 0, name
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device="npu")
        stream = Handle(torch_npu.npu.current_stream().npu_stream)
        status = library[name](Handle(workspace.data_ptr()), size, executor, stream)
        assert status == 0, name
        torch_npu.npu.synchronize()
