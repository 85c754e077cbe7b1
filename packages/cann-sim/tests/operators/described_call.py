"""Calls of the first function of an operator with tensors that are described, not made by torch."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cann_sim
from operators.c_arguments import Arguments, Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
_NUMBERS = {
    "Int": ctypes.c_int64,
    "Int32": ctypes.c_int32,
    "Int8": ctypes.c_int8,
    "Bool": ctypes.c_bool,
    "Double": ctypes.c_double,
    "Float": ctypes.c_float,
    "DataType": ctypes.c_int32,
}
_MAKERS: dict[str, Callable[[Arguments, Any], object]] = {
    "Scalar": lambda maker, number: maker.scalar(ctypes.c_double(number)),
    "ScalarList": lambda maker, numbers: maker.scalars([ctypes.c_double(n) for n in numbers]),
    "TensorList": Arguments.tensors,
    "IntArray": Arguments.integers,
    "BoolArray": Arguments.booleans,
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of the first function."""

    status: int
    message: str


class Interface:
    """The C interface of the loaded simulator."""

    def __init__(self) -> None:
        built = cann_sim.build()
        paths = {path.name: path for path in built.library_paths("value")}
        self.operator_libraries = built.deferred_paths
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
            maker = Arguments(self._library, owned)
            made = [
                _make(maker, kind, value)
                for (kind, _), value in zip(arguments, values, strict=True)
            ]
            status = self._library[f"{operator}GetWorkspaceSize"](
                *made, ctypes.byref(size), ctypes.byref(executor)
            )
            message = (self._message() or b"").decode() if status else ""
            if executor.value:
                self._library.aclDestroyAclOpExecutor(executor)
        return Answer(status=status, message=message)


def _make(maker: Arguments, kind: str, value: Any) -> object:
    made: object = None
    if kind in _NUMBERS:
        made = _NUMBERS[kind](value or 0)
    elif value is None:
        pass
    elif kind in TENSORS:
        made = maker.tensor(value)
    elif kind in {"Text", "OptionalText"}:
        made = ctypes.c_char_p(value.encode())
    else:
        made = _MAKERS[kind.removeprefix("Optional")](maker, value)
    return made
