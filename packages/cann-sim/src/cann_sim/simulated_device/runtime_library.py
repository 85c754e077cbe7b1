"""Calling the simulated runtime of this process."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cann_sim.activation import is_active
from cann_sim.errors import InactiveError

if TYPE_CHECKING:
    from collections.abc import Callable


def runtime_function(
    name: str, purpose: str, library: str = "libascendcl.so"
) -> Callable[..., int]:
    """Return a function of a loaded library that answers with a length.

    Args:
        name: Its name in the library.
        purpose: What is done with it, for the error message.
        library: File name of the library.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    if not is_active():
        raise InactiveError(
            f"cann-sim was asked {purpose}: expected the simulator to be loaded, found none. "
            "Call cann_sim.activate() first, or start the program with 'cann-sim run -- ...'."
        )
    function = getattr(ctypes.CDLL(library), name)
    function.restype = ctypes.c_size_t
    return function  # type: ignore[no-any-return]


def read_text(name: str, purpose: str, *arguments: bytes, library: str = "libascendcl.so") -> str:
    """Return text that a library writes into a buffer.

    Args:
        name: A function of (arguments, buffer, size) that returns the length of the text.
        purpose: The purpose of the text, for the error message.
        arguments: Arguments before the buffer; the function may be called more than once.
        library: File name of the library.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    function = runtime_function(name, purpose, library)
    values = [ctypes.c_char_p(argument) for argument in arguments]
    size = 1024
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = function(*values, buffer, ctypes.c_size_t(size))
        if length <= size:
            return buffer.raw[:length].decode()
        size = length + 256
