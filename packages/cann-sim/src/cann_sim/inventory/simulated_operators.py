"""Which operators the simulated libraries implement."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Of the ELF specification (System V ABI, generic part, chapters 4 and 5), 64-bit little endian.
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS: Final = 11
_GLOBAL: Final = 1
_WEAK: Final = 2
_UNDEFINED: Final = 0

_SUFFIX: Final = "GetWorkspaceSize"
# As in native/operators/compiled/compiled_call.h.
_COMPILED_PREFIX: Final = "cann_sim_compiled_"

# Texts that CANN_SIM_OPERATOR leaves in the library: "(Tensor, self), (Scalar, other)".
_ARGUMENTS: Final = "cann_sim_arguments_"
_ARGUMENT: Final = re.compile(r"\((\w+), (\w+)\)")

# Itanium C++ ABI: int atb::CreateOperation<atb::infer::<Name>Param>(...).
_CREATE: Final = re.compile(r"_ZN3atb15CreateOperationINS_5infer\d+(\w+?)ParamEEEi")


def simulated_operators(libraries: Iterable[Path]) -> tuple[str, ...]:
    """Return the operators that the libraries implement, sorted.

    Args:
        libraries: The deferred libraries of a build. `libopapi.so` itself only jumps to them.

    Returns:
        Names without a suffix, for instance `aclnnAdd`.

    Raises:
        OSError: A library cannot be read.
        ValueError: One is not a 64-bit little-endian ELF file.
    """
    names = _global_names(libraries)
    return tuple(sorted(name for name in _pairs(names) if name.startswith("aclnn")))


def simulated_compiled_operators(libraries: Iterable[Path]) -> tuple[str, ...]:
    """Return the simulated operators of the older API (`aclopCompileAndExecute`), sorted.

    Args:
        libraries: The deferred libraries of a build.

    Returns:
        Names, for instance `StrideAdd`; `cann_sim.counters` counts launches under the same names.

    Raises:
        OSError: A library cannot be read.
        ValueError: A library is not a 64-bit little-endian ELF file.
    """
    names = _global_names(libraries)
    compiled = (name for name in names if name.startswith(_COMPILED_PREFIX))
    return tuple(sorted(name.removeprefix(_COMPILED_PREFIX) for name in compiled))


def simulated_atb_operations(library: Path) -> tuple[str, ...]:
    """Return the operations of ATB (Ascend Transformer Boost) that the library implements, sorted.

    Args:
        library: A built `libcann_sim_atb.so`.

    Returns:
        Functions, for instance `AtbMLA`, and operations made from parameters, as
        `PagedAttentionOperation`; `cann_sim.counters` counts launches under the same names.

    Raises:
        OSError: The library cannot be read.
        ValueError: It is not a 64-bit little-endian ELF file.
    """
    names = {name for name, binding in _symbols(library) if binding in (_GLOBAL, _WEAK)}
    functions = {name for name in _pairs(names) if name.startswith("Atb")}
    created = {f"{found[1]}Operation" for found in map(_CREATE.match, names) if found}
    return tuple(sorted(functions | created))


def simulated_arguments(libraries: Iterable[Path]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the arguments of each operator that the libraries implement.

    Args:
        libraries: The deferred libraries of a build.

    Returns:
        Of each operator the (type, name) of its arguments, for instance
        `{"aclnnAdds": (("Tensor", "self"), ("Scalar", "other"), ...), ...}`. The types are those of
        the simulator's own definitions (`native/operators/interface/argument.h`).

    Raises:
        OSError: A library cannot be read.
        ValueError: One is not a 64-bit little-endian ELF file.
    """
    arguments = {}
    for library in libraries:
        data = library.read_bytes()
        for name, _, offset in _definitions(data, library):
            if name.startswith(_ARGUMENTS):
                text = data[offset : data.index(b"\0", offset)].decode()
                arguments[name.removeprefix(_ARGUMENTS)] = tuple(_ARGUMENT.findall(text))
    return dict(sorted(arguments.items()))


def _global_names(libraries: Iterable[Path]) -> set[str]:
    return {
        name for library in libraries for name, binding in _symbols(library) if binding == _GLOBAL
    }


def _pairs(names: set[str]) -> Iterator[str]:
    """Yield the functions that come with one that asks for their workspace."""
    functions = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return (name for name in functions if name in names)


def _symbols(library: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the binding of each symbol that the library defines."""
    return ((name, binding) for name, binding, _ in _definitions(library.read_bytes(), library))


def _definitions(data: bytes, library: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the binding and the place in the file of each symbol that is defined."""
    if not data.startswith(_ELF_64_LITTLE):
        message = (
            f"listing the operators of {library}: expected a 64-bit little-endian ELF file, found "
            f"one that starts with {data[:6]!r}; give a library of a build"
        )
        raise ValueError(message)
    header = _HEADER.unpack_from(data)
    table_offset, entry_size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, table_offset + n * entry_size) for n in range(count)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        start, size = section[4], section[5]
        strings = sections[section[6]][4]
        for place in range(start, start + size, _SYMBOL.size):
            name, info, _, defined_in, address, _ = _SYMBOL.unpack_from(data, place)
            if defined_in != _UNDEFINED:
                end = data.index(b"\0", strings + name)
                # A reserved index, of a symbol that is in no section, has no place in the file.
                within = sections[defined_in] if defined_in < count else None
                offset = address - within[3] + within[4] if within else 0
                yield data[strings + name : end].decode(), info >> 4, offset
