"""Which operators the simulated operator library implements."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Of the ELF specification (System V ABI, generic part, chapters 4 and 5), 64-bit little endian.
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS: Final = 11
_GLOBAL: Final = 1
_UNDEFINED: Final = 0

_SUFFIX: Final = "GetWorkspaceSize"


def simulated_operators(library: Path) -> tuple[str, ...]:
    """Return the operators that the library implements, sorted.

    The library defines every name torch_npu may ask for; those nothing implements are weak symbols
    that fail when they are called (`missing_operators.cpp`), the others are strong.

    Args:
        library: A built `libopapi.so`.

    Returns:
        Names without a suffix, for instance `aclnnAdd`.

    Raises:
        OSError: The library cannot be read.
        ValueError: It is not a 64-bit little-endian ELF file.
    """
    data = library.read_bytes()
    if not data.startswith(_ELF_64_LITTLE):
        message = (
            f"listing the operators of {library}: expected a 64-bit little-endian ELF file, found "
            f"one that starts with {data[:6]!r}; give the libopapi.so of a build"
        )
        raise ValueError(message)
    names = set(_strong_symbols(data))
    pairs = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return tuple(sorted(name for name in pairs if name.startswith("aclnn") and name in names))


def _strong_symbols(data: bytes) -> Iterator[str]:
    header = _HEADER.unpack_from(data)
    table_offset, entry_size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, table_offset + n * entry_size) for n in range(count)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        start, size = section[4], section[5]
        strings = sections[section[6]][4]
        for offset in range(start, start + size, _SYMBOL.size):
            name, info, _, defined_in, _, _ = _SYMBOL.unpack_from(data, offset)
            if info >> 4 == _GLOBAL and defined_in != _UNDEFINED:
                end = data.index(b"\0", strings + name)
                yield data[strings + name : end].decode()
