"""Generated functions as plain data: their code, and the names of the globals they read."""

from __future__ import annotations

import builtins
import dis
import importlib
import inspect
import itertools
import types
from typing import TYPE_CHECKING, Any

from npu_compile.caching.code_reader import codes_of, is_versioned, plain_text
from npu_compile.caching.uncacheable import UncacheableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A reference is a tuple that `marshal` can write: what it is, and where it is found.
Reference = tuple[Any, ...]


def reference_to(name: str, value: object) -> Reference:
    """Return how another process can find a value that generated code reads.

    Raises:
        UncacheableError: It has no name, or changes to it cannot be detected.
    """
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__)
    if value is builtins.__dict__:
        return ("builtins",)
    if type(value) in {bool, int, float, complex, str, bytes, type(None)}:
        return ("constant", value)
    if type(value) is tuple and plain_text(value) is not None:
        return ("tuple", tuple(reference_to(name, each) for each in value))
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(path, str) and is_versioned(value):
        reference = ("object", module, path)
        try:
            if found_by(reference) is value:
                return reference
        except (ImportError, AttributeError):
            pass
    raise UncacheableError(
        f"the graph reads {name}, a {type(value).__module__}.{type(value).__qualname__}, which is "
        "not found by a name that torch or Python give it"
    )


def found_by(reference: Reference) -> Any:
    """Return the value of a reference.

    Raises:
        ImportError: Its module does not exist.
        AttributeError: It is not in its module.
    """
    kind, *rest = reference
    if kind == "module":
        return importlib.import_module(rest[0])
    if kind == "builtins":
        return builtins.__dict__
    if kind == "constant":
        return rest[0]
    if kind == "tuple":
        return tuple(map(found_by, rest[0]))
    value: Any = importlib.import_module(rest[0])
    for part in rest[1].split("."):
        value = (
            inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
        )
    return value


def names_read(code: types.CodeType) -> Iterator[str]:
    """Yield the globals that code reads, including nested code."""
    for instruction in itertools.chain(*map(dis.get_instructions, codes_of(code))):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield str(instruction.argval)
        elif instruction.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
            raise UncacheableError(f"the graph's code writes the global {instruction.argval}")


def references_of(
    code: types.CodeType, module: Mapping[str, object], left_out: frozenset[str] = frozenset()
) -> dict[str, Reference]:
    """Return references to all globals that code reads, except built-ins and those left out.

    Raises:
        UncacheableError: as for `reference_to`.
    """
    names = dict.fromkeys(names_read(code))
    return {
        name: reference_to(name, module[name])
        for name in names
        if name not in left_out and name in module
    }
