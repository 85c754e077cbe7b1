"""Hashes of functions that are stable between processes and change with what they read."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING

from fx_passes.errors import FingerprintError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Their versions are in the hash of a pipeline, so what belongs to them counts with its name.
_VERSIONED = frozenset({"fx_passes", "torch", "torch_npu"})


def fingerprint_of_functions(functions: Iterable[object], *parts: object) -> str:
    """Return a stable hash of some functions and plain values.

    The hash of a function includes its source (or its code object), its defaults, its closure
    variables and the module globals it reads: constants by value, and functions and
    classes of the same top-level package in the same way as the function. Objects of this package,
    torch, Python or another top-level package are included by name, and so are objects
    of a module without stable content.

    Args:
        functions: Plain functions, methods, partials, or instances with a `fingerprint()`.
        parts: Literals and tuples of literals.

    Raises:
        FingerprintError: A default or closed-over value has no stable content.
    """
    reader = _Reader()
    digest = hashlib.sha256()
    for part in (*map(reader.content, functions), *map(reader.content, parts)):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def fingerprint_of_code(function: object) -> str:
    """Return a stable hash of a function's code, without what it reads and closes over."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return _code(code) if isinstance(code, CodeType) else type(function).__qualname__


class _Reader:
    def __init__(self) -> None:
        # What was read counts once; functions may call themselves and each other.
        self._read: set[object] = set()

    def content(self, item: object) -> str:
        """Return a text that changes with the meaning of a value."""
        if item is None or isinstance(item, (bool, int, float, str, bytes)):
            text = repr(item)
        elif isinstance(item, (tuple, list)):
            text = f"[{', '.join(map(self.content, item))}]"
        elif isinstance(item, (frozenset, set)):
            text = f"{{{', '.join(sorted(map(self.content, item)))}}}"
        elif isinstance(item, Mapping):
            pairs = (f"{self.content(key)}: {self.content(each)}" for key, each in item.items())
            text = f"{{{', '.join(pairs)}}}"
        elif isinstance(item, partial):
            parts = (item.func, item.args, item.keywords)
            text = f"partial({', '.join(map(self.content, parts))})"
        elif inspect.ismethod(item):
            text = f"{self.content(item.__func__)} of {self.content(item.__self__)}"
        elif isinstance(item, FunctionType):
            text = self._function(item)
        elif isinstance(item, (type, ModuleType)):
            text = item.__name__
        else:
            text = self._object(item)
        return text

    def _object(self, item: object) -> str:
        fingerprint = getattr(item, "fingerprint", None)
        if callable(fingerprint):
            return str(fingerprint())
        if is_dataclass(item) and not isinstance(item, type):
            values = {each.name: getattr(item, each.name) for each in fields(item)}
            return f"{type(item).__qualname__}{self.content(values)}"
        text = repr(item)
        if " at 0x" in text:
            raise FingerprintError(
                f"hashing {text}: its representation holds an address, so the hash would differ in "
                "every process; give its class a `fingerprint()` method or a stable `__repr__`"
            )
        return text

    def _function(self, function: FunctionType) -> str:
        if function in self._read:
            return function.__qualname__
        self._read.add(function)
        held = [
            *(function.__defaults__ or ()),
            *(function.__kwdefaults__ or {}).items(),
            # Comparing tells an empty cell, whose contents cannot be read, from others.
            *(each.cell_contents for each in function.__closure__ or () if each != CellType()),
        ]
        read = [f"{name}={self._global(value, function)}" for name, value in _globals(function)]
        return (
            f"{function.__qualname__}: {_source(function)} {self.content(held)} {', '.join(read)}"
        )

    def _global(self, item: object, reader: FunctionType) -> str:
        """Return the content of a module global that a function reads."""
        if isinstance(item, (FunctionType, type)):
            name = f"{item.__module__}.{item.__qualname__}"
            package = _package(item.__module__)
            if package in _VERSIONED or package != _package(reader.__module__):
                return name
            return self._function(item) if isinstance(item, FunctionType) else self._class(item)
        try:
            return self.content(item)
        except FingerprintError:
            return type(item).__qualname__

    def _class(self, item: type) -> str:
        if item in self._read:
            return item.__qualname__
        self._read.add(item)
        try:
            return inspect.getsource(item)
        except (OSError, TypeError):
            return item.__qualname__


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _globals(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the module globals that a function reads, also through modules that it imports."""
    if _package(function.__module__) in _VERSIONED:
        return
    names = dict.fromkeys(_names(function.__code__))
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield name, value
        versioned = _VERSIONED | sys.stdlib_module_names
        if isinstance(value, ModuleType) and _package(value.__name__) not in versioned:
            held = vars(value)
            for attribute in names:
                if attribute in held and not isinstance(held[attribute], ModuleType):
                    yield f"{name}.{attribute}", held[attribute]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(function: FunctionType) -> str:
    code = function.__code__
    # `<string>` names many texts; Python 3.13 gives the source of another for it.
    if not code.co_filename.startswith("<"):
        try:
            return textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            pass
    return _code(code)


def _code(code: CodeType) -> str:
    # The file and the line numbers of a code object would make the hash depend on where it stands.
    plain = code.replace(co_filename="", co_firstlineno=1)
    return hashlib.sha256(marshal.dumps(plain)).hexdigest()
