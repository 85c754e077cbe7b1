"""Hashes of functions that stay the same between processes and change with the source."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import textwrap
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING

from fx_passes.errors import FingerprintError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["fingerprint_of_functions"]


def fingerprint_of_functions(functions: Iterable[object], *parts: object) -> str:
    """Return a stable hash of some functions and plain values.

    A function counts with its source (its code object where there is none), its defaults and what
    it closes over. Functions that it merely calls do not count.

    Args:
        functions: Plain functions, methods, partials, or instances with a `fingerprint()`.
        parts: Literals and tuples of literals.

    Raises:
        FingerprintError: A default or closed-over value has no stable content.
    """
    digest = hashlib.sha256()
    for part in (*map(_content, functions), *map(_content, parts)):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _content(item: object) -> str:
    if item is None or isinstance(item, (bool, int, float, str, bytes)):
        text = repr(item)
    elif isinstance(item, (tuple, list)):
        text = f"[{', '.join(map(_content, item))}]"
    elif isinstance(item, (frozenset, set)):
        text = f"{{{', '.join(sorted(map(_content, item)))}}}"
    elif isinstance(item, dict):
        text = f"{{{', '.join(f'{_content(k)}: {_content(v)}' for k, v in item.items())}}}"
    elif isinstance(item, partial):
        text = f"partial({_content(item.func)}, {_content(item.args)}, {_content(item.keywords)})"
    elif inspect.ismethod(item):
        text = f"{_content(item.__func__)} of {_content(item.__self__)}"
    elif isinstance(item, FunctionType):
        text = _function(item)
    elif is_dataclass(item) and not isinstance(item, type):
        values = {each.name: getattr(item, each.name) for each in fields(item)}
        text = f"{type(item).__qualname__}{_content(values)}"
    elif isinstance(item, (type, ModuleType)):
        text = item.__name__
    else:
        text = _other(item)
    return text


def _function(function: FunctionType) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        source = _code(function.__code__)
    cells = [] if function.__closure__ is None else [c.cell_contents for c in function.__closure__]
    held = [*(function.__defaults__ or ()), *cells]
    return f"{function.__qualname__}: {source} {_content(held)}"


def _code(code: CodeType) -> str:
    # The file and the line numbers of a code object would make the hash depend on where it stands.
    plain = code.replace(co_filename="", co_firstlineno=1)
    return hashlib.sha256(marshal.dumps(plain)).hexdigest()


def _other(item: object) -> str:
    fingerprint = getattr(item, "fingerprint", None)
    if callable(fingerprint):
        return str(fingerprint())
    text = repr(item)
    if " at 0x" in text:
        raise FingerprintError(
            f"hashing {text}: its representation holds an address, so the hash would differ in "
            "every process; give its class a `fingerprint()` method or a stable `__repr__`"
        )
    return text
