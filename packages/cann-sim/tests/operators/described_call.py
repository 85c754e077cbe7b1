"""Calls of the first function of an operator with tensors that are described, not made by torch."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Sequence

TENSORS = frozenset(
    {
        "Tensor",
        "OptionalTensor",
        "ResizableTensor",
        "TensorAsList",
        "TensorInList",
        "OptionalTensorInList",
    }
)
TENSOR_LISTS = frozenset({"TensorList", "OptionalTensorList"})
FORMAT_ND = 2
FORMAT_NZ = 29
_BYTES_OF_ELEMENT = 16
_NUMBERS = {
    "Int": ctypes.c_int64,
    "Int32": ctypes.c_int32,
    "Int8": ctypes.c_int8,
    "Bool": ctypes.c_bool,
    "Double": ctypes.c_double,
    "Float": ctypes.c_float,
    "DataType": ctypes.c_int32,
}
Handle = ctypes.c_void_p


@dataclass(frozen=True, kw_only=True)
class Description:
    """A tensor as the C interface describes it; its memory is zeros."""

    type: int
    sizes: tuple[int, ...] = (2, 3)
    strides: tuple[int, ...] | None = None
    format: int = FORMAT_ND
    storage: tuple[int, ...] | None = None
    offset: int = 0

    def of_type(self, number: int) -> Description:
        """Return the same tensor in another dtype."""
        return replace(self, type=number)

    def elements(self) -> int:
        """Return how many elements the memory has to have."""
        storage = 1
        for size in self.storage or self.sizes:
            storage *= size
        strides = self.strides or ()
        last = sum((n - 1) * s for n, s in zip(self.sizes, strides, strict=False) if n > 0)
        return max(storage, last + 1) + self.offset


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the first function answered."""

    status: int
    message: str


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Interface:
    """The C interface of the loaded simulator."""

    def __init__(self) -> None:
        paths = {path.name: path for path in cann_sim.build().library_paths("value")}
        self.library_path = paths["libopapi.so"]
        self._library = ctypes.CDLL(str(paths["libopapi.so"]))
        self._message = ctypes.CDLL(str(paths["libascendcl.so"])).aclGetRecentErrMsg
        self._message.restype = ctypes.c_char_p

    def record_calls(self, *, on: bool) -> None:
        """Keep the calls that operators accept from now on, or no longer."""
        self._library.cann_sim_record_calls(int(on))

    def recorded_calls(self) -> str:
        """Return the kept calls as JSON."""
        read = self._library.cann_sim_recorded_calls
        read.restype = ctypes.c_size_t
        buffer = ctypes.create_string_buffer(read(None, ctypes.c_size_t(0)))
        read(buffer, ctypes.c_size_t(len(buffer)))
        return buffer.raw.decode()

    def prepare(
        self, operator: str, arguments: Sequence[tuple[str, str]], values: Sequence[Any]
    ) -> Answer:
        """Call the first function.

        Args:
            operator: Its name.
            arguments: The (type, name) of each argument.
            values: A value for each: a `Description`, a list of them or of numbers, a number, a
                text, or None for a null pointer (0 for a number).
        """
        size, executor = ctypes.c_uint64(), Handle()
        with ExitStack() as owned:
            made = [
                self._make(kind, value, owned)
                for (kind, _), value in zip(arguments, values, strict=True)
            ]
            status = self._library[f"{operator}GetWorkspaceSize"](
                *made, ctypes.byref(size), ctypes.byref(executor)
            )
            message = (self._message() or b"").decode() if status else ""
            if executor.value:
                self._library.aclDestroyAclOpExecutor(executor)
        return Answer(status=status, message=message)

    def _make(self, kind: str, value: Any, owned: ExitStack) -> object:
        made: object = None
        if kind in _NUMBERS:
            made = _NUMBERS[kind](value or 0)
        elif value is None:
            pass
        elif kind in TENSORS:
            made = self._tensor(value, owned)
            owned.callback(self._library.aclDestroyTensor, made)
        elif kind in {"Scalar", "OptionalScalar"}:
            made = self._scalar(value, owned)
        elif kind in {"Text", "OptionalText"}:
            made = ctypes.c_char_p(value.encode())
        else:
            made = self._list(kind.removeprefix("Optional"), value, owned)
        return made

    def _list(self, kind: str, values: Sequence[Any], owned: ExitStack) -> Handle:
        array: ctypes.Array[Any]
        if kind == "TensorList":
            # A list owns its members.
            members = [None if item is None else self._tensor(item, owned) for item in values]
            array = (Handle * len(members))(*members)
        elif kind == "ScalarList":
            array = (Handle * len(values))(*[self._scalar(item, ExitStack()) for item in values])
        elif kind == "IntArray":
            array = (ctypes.c_int64 * len(values))(*values)
        else:
            array = (ctypes.c_bool * len(values))(*map(bool, values))
        return self._create(kind, owned, array, ctypes.c_uint64(len(values)))

    def _create(self, kind: str, owned: ExitStack, *parts: object) -> Handle:
        create = self._library[f"aclCreate{kind}"]
        create.restype = Handle
        made = Handle(create(*parts))
        owned.callback(self._library[f"aclDestroy{kind}"], made)
        return made

    def _scalar(self, value: float, owned: ExitStack) -> Handle:
        number = ctypes.c_double(value)
        return self._create("Scalar", owned, ctypes.byref(number), 11)

    def _tensor(self, tensor: Description, owned: ExitStack) -> Handle:
        memory = ctypes.create_string_buffer(max(tensor.elements(), 1) * _BYTES_OF_ELEMENT)
        owned.callback(lambda: memory)  # lives as long as the call
        storage = tensor.storage or tensor.sizes
        create = self._library.aclCreateTensor
        create.restype = Handle
        return Handle(
            create(
                _integers(tensor.sizes),
                ctypes.c_uint64(len(tensor.sizes)),
                tensor.type,
                _integers(tensor.strides or contiguous_strides(tensor.sizes)),
                ctypes.c_int64(tensor.offset),
                tensor.format,
                _integers(storage),
                ctypes.c_uint64(len(storage)),
                memory,
            )
        )


def _integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)
