"""Arguments of the operators' C interface: tensors, scalars and lists."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

FORMAT_ND = 2
FORMAT_NZ = 29
_BYTES_OF_ELEMENT = 16
_TYPE_NUMBERS = {ctypes.c_float: 0, ctypes.c_double: 11}
Handle = ctypes.c_void_p


@dataclass(frozen=True, kw_only=True)
class Description:
    """A tensor as the C interface describes it; its memory is zeros where no address is given."""

    type: int
    sizes: tuple[int, ...] = (2, 3)
    strides: tuple[int, ...] | None = None
    format: int = FORMAT_ND
    storage: tuple[int, ...] | None = None
    offset: int = 0
    address: int | None = None

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


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Arguments:
    """Makes arguments, which are destroyed with the stack that it is given."""

    def __init__(self, library: ctypes.CDLL, owned: ExitStack) -> None:
        self._library = library
        self._owned = owned

    def tensor(self, description: Description) -> Handle:
        made = self._tensor(description)
        self._owned.callback(self._library.aclDestroyTensor, made)
        return made

    def tensors(self, descriptions: Sequence[Description | None]) -> Handle:
        # A list owns its members.
        members = [None if item is None else self._tensor(item) for item in descriptions]
        return self._listed("TensorList", (Handle * len(members))(*members))

    def scalar(self, number: ctypes.c_float | ctypes.c_double) -> Handle:
        made = self._scalar(number)
        self._owned.callback(self._library.aclDestroyScalar, made)
        return made

    def scalars(self, numbers: Sequence[ctypes.c_float | ctypes.c_double]) -> Handle:
        members = [self._scalar(number) for number in numbers]
        return self._listed("ScalarList", (Handle * len(members))(*members))

    def integers(self, values: Sequence[int]) -> Handle:
        return self._listed("IntArray", _integers(values))

    def booleans(self, values: Sequence[bool]) -> Handle:
        return self._listed("BoolArray", (ctypes.c_bool * len(values))(*map(bool, values)))

    def _listed(self, kind: str, members: ctypes.Array[Any]) -> Handle:
        made = self._create(kind, members, ctypes.c_uint64(len(members)))
        self._owned.callback(self._library[f"aclDestroy{kind}"], made)
        return made

    def _create(self, kind: str, *parts: object) -> Handle:
        create = self._library[f"aclCreate{kind}"]
        create.restype = Handle
        return Handle(create(*parts))

    def _scalar(self, number: ctypes.c_float | ctypes.c_double) -> Handle:
        return self._create("Scalar", ctypes.byref(number), _TYPE_NUMBERS[type(number)])

    def _tensor(self, description: Description) -> Handle:
        sizes = description.sizes
        storage = description.storage or sizes
        return self._create(
            "Tensor",
            _integers(sizes),
            ctypes.c_uint64(len(sizes)),
            description.type,
            _integers(description.strides or contiguous_strides(sizes)),
            ctypes.c_int64(description.offset),
            description.format,
            _integers(storage),
            ctypes.c_uint64(len(storage)),
            Handle(description.address or self._zeros(description)),
        )

    def _zeros(self, description: Description) -> int:
        count = max(description.elements(), 1) * _BYTES_OF_ELEMENT
        memory = ctypes.create_string_buffer(count)
        self._owned.callback(lambda: memory)  # lives as long as the arguments
        return ctypes.addressof(memory)


def _integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)
