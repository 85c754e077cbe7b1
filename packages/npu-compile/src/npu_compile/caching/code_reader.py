"""Hashes of functions and classes as they are in memory: what they do, not where they stand."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.torch_internals import (
    OpOverload,
    OpOverloadPacket,
    is_baked_in,
    registered_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Python's own, set by it or without a meaning for what a class does.
_SKIPPED: Final = frozenset(
    {
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
# What functions read by these cannot be told from their names.
_NOT_FOLLOWED: Final = frozenset(
    {"__import__", "environ", "eval", "exec", "getattr", "getenv", "globals", "import_module"}
    | {"modules", "ops", "vars"}
)
# What a call of a module begins with.
OF_A_CALL: Final = ("__call__", "__getattr__", "_call_impl", "_wrapped_call_impl", "forward")
# What is known by a name that belongs to it.
_NAMED: Final = (
    type,
    types.FunctionType,
    types.ModuleType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    OpOverload,
    OpOverloadPacket,
)
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype)


def plain_text(value: object) -> str | None:
    """Return a text that is equal for equal constants of equal types; ``None`` for all else."""
    kind = type(value)
    if kind in _PLAIN or kind in {torch.device, torch.layout, torch.memory_format}:
        return repr(value)
    if kind in {tuple, list, torch.Size, slice}:
        items = (value.start, value.stop, value.step) if isinstance(value, slice) else value
        texts = [plain_text(item) for item in items]  # type: ignore[attr-defined]
        if None in texts:
            return None
        return f"{kind.__name__}({', '.join(map(str, texts))})"
    if kind is frozenset or kind is set:
        texts = [plain_text(item) for item in value]  # type: ignore[attr-defined]
        return None if None in texts else f"{kind.__name__}({sorted(map(str, texts))})"
    if isinstance(value, enum.Enum):
        inner = plain_text(value.value)
        return None if inner is None else f"{name_of_class(kind)}.{value.name}={inner}"
    return None


def name_of_class(kind: type) -> str:
    """Return the full name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


class CodeReader:
    """Hashes functions and classes, each once.

    Attributes:
        codes: all code objects that went into the hashes so far, with those inside of them.
    """

    def __init__(self) -> None:
        self.codes: set[types.CodeType] = set()
        # The objects are kept too: an address means nothing when what was there is gone.
        self._known: dict[int, tuple[object, str]] = {}

    def function(self, function: types.FunctionType) -> str:
        """Return the hash of a function: its code, defaults, and what it closes over.

        Of other objects in these counts what they are, not what they hold.

        Raises:
            UncacheableError: Dynamo takes what it returns for a constant.
        """
        if is_baked_in(function):
            raise UncacheableError(
                f"what {function.__qualname__} returned is a constant of the graph "
                "(torch.compiler.assume_constant_result)"
            )
        return self._once(function, lambda: self._function(function))

    def class_(self, kind: type) -> str:
        """Return the hash of a class and of all that it inherits from: methods and constants."""
        return self._once(kind, lambda: self._class(kind))

    def function_and_all_it_reads(self, function: Callable[..., Any]) -> str:
        """Return the hash of a function that Dynamo did not look into, and of what it may call.

        That is what it names of its module and of modules, functions and classes in full, except
        for those of Python and torch, whose versions say what they are.

        Raises:
            UncacheableError: it reads something that cannot be compared.
        """
        seen: dict[int, object] = {}
        return _digest(*self._deep(function, seen))

    def _once(self, item: object, make: Callable[[], str]) -> str:
        known = self._known.get(id(item))
        if known is None:
            # What refers to itself finds its name.
            self._known[id(item)] = (item, getattr(item, "__qualname__", ""))
            known = self._known[id(item)] = (item, make())
        return known[1]

    def _function(self, function: types.FunctionType) -> str:
        return _digest(
            function.__module__,
            function.__qualname__,
            self._code(function.__code__),
            *(self._member(value) for value in function.__defaults__ or ()),
            "keywords",
            *(
                f"{name}={self._member(value)}"
                for name, value in (function.__kwdefaults__ or {}).items()
            ),
            "closure",
            *(self._member(value) for value in _cells(function)),
        )

    def _class(self, kind: type) -> str:
        parts = registered_classes(kind)
        metaclass: type = type(kind)
        for base in (*kind.__mro__, *metaclass.__mro__):
            parts.append(name_of_class(base))
            if base.__module__ != "builtins":
                held = {name: vars(base)[name] for name in vars(base).keys() - _SKIPPED}
                if is_versioned(base):
                    held = {key: each for key, each in held.items() if is_of_its_own(key, each)}
                parts += [f"{name}={self._member(held[name])}" for name in sorted(held)]
        return _digest(*parts)

    def _member(self, value: object) -> str:  # noqa: PLR0911 - one answer for each kind of value
        text = plain_text(value)
        if text is not None:
            return text
        if isinstance(value, types.FunctionType):
            return self._once(value, lambda: self._function(value))
        if isinstance(value, types.MethodType):
            return self._member(value.__func__)
        if isinstance(value, (staticmethod, classmethod)):
            return f"{type(value).__name__} {self._member(value.__func__)}"
        if isinstance(value, property):
            parts = (value.fget, value.fset, value.fdel)
            return f"property {', '.join(map(self._member, parts))}"
        if isinstance(value, functools.cached_property):
            return f"cached {self._member(value.func)}"
        if isinstance(value, functools.partial):
            return f"partial {self._member(value.func)}"
        if isinstance(value, type):
            return name_of_class(value)
        inner = getattr(value, "__wrapped__", None)
        if isinstance(inner, types.FunctionType):
            return f"{name_of_class(type(value))} of {self._member(inner)}"
        return name_of_class(type(value))

    def _code(self, code: types.CodeType) -> str:
        self.codes.add(code)
        return _digest(
            code.co_code.hex(),
            repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
            repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)),
            repr(code.co_flags),
            getattr(code, "co_exceptiontable", b"").hex(),
            *(
                self._code(each) if isinstance(each, types.CodeType) else str(plain_text(each))
                for each in code.co_consts
            ),
        )

    def _deep(self, item: object, seen: dict[int, object]) -> Iterator[str]:
        item = getattr(item, "__func__", item)
        if id(item) in seen:
            return
        seen[id(item)] = item
        text = plain_text(item)
        if text is not None:
            yield text
        elif is_versioned(item):
            yield str(getattr(item, "__qualname__", getattr(item, "__name__", "")))
        elif isinstance(item, types.FunctionType):
            _require_followed(item)
            yield self.function(item)
            keywords = (item.__kwdefaults__ or {}).items()
            held = [("", each) for each in (*(item.__defaults__ or ()), *_cells(item))]
            for name, value in (*held, *keywords, *_globals(item)):
                yield name
                yield from self._deep(value, seen)
        elif isinstance(item, type):
            yield self.class_(item)
            for member in _members(item):
                yield from self._deep(member, seen)
        elif isinstance(item, types.ModuleType):
            yield item.__name__
        else:
            raise UncacheableError(f"it reads a {name_of_class(type(item))}")


def registered_classes(kind: type) -> list[str]:
    """Return the names of the classes that were declared subclasses of an abstract one.

    Those of Python, torch and torch_npu are left out.
    """
    return sorted(name_of_class(each) for each in registered_with(kind) if not is_versioned(each))


def is_versioned(item: object) -> bool:
    """Whether the version of Python, of torch or of torch_npu says what an object is.

    Of an object of one of their classes it does not: what it holds is not theirs.
    """
    if isinstance(item, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        return True
    if not isinstance(item, _NAMED):
        return False
    name = item.__name__ if isinstance(item, types.ModuleType) else getattr(item, "__module__", "")
    package = str(name).partition(".")[0]
    return package in {"torch", "torch_npu"} or package in sys.stdlib_module_names


def is_versioned_file(path: str, own_folders: tuple[str, ...] = ()) -> bool:
    """Whether what stands in a file is in the key of the cache.

    Args:
        path: of the file, or what stands for one in a code object.
        own_folders: those of the packages whose sources are in the key.
    """
    if "site-packages" not in path and "dist-packages" not in path:
        standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        if path.startswith(tuple(f"{folder}/" for folder in standard)):
            return True
    packages = (sys.modules[name] for name in ("torch", "torch_npu") if name in sys.modules)
    folders = (*(str(Path(str(each.__file__)).parent) for each in packages), *own_folders)
    return path.startswith(("<frozen ", *(f"{folder}/" for folder in folders)))


def is_of_its_own(name: str, member: object) -> bool:
    """Whether a member of torch's classes is to be compared though torch has a version.

    torch_npu and Dynamo put methods of theirs into `nn.Module` when they are first used. What
    others put there, constants, and what a call begins with whoever wrote it, counts.
    """
    if name in OF_A_CALL:
        return True
    if name.startswith("___"):  # Dynamo's own
        return False
    if isinstance(member, property):
        parts = (member.fget, member.fset, member.fdel)
        return any(is_of_its_own("", each) for each in parts if each is not None)
    for attribute in ("__func__", "func", "__wrapped__"):
        member = getattr(member, attribute, member)
    code = getattr(member, "__code__", None)
    if code is not None:
        return not is_versioned_file(code.co_filename)
    return plain_text(member) is not None or not is_versioned(type(member))


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _cells(function: types.FunctionType) -> list[object]:
    # Comparing tells an empty cell, whose contents cannot be read, from others.
    return [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]


def _globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function names of its module, and through it of modules without a version."""
    names = dict.fromkeys(_names(function.__code__))
    for name in names:
        if name not in function.__globals__:
            continue
        yield from _below(name, function.__globals__[name], names, set())


def _below(
    path: str, value: object, names: Iterable[str], above: set[str]
) -> Iterator[tuple[str, object]]:
    yield path, value
    if not isinstance(value, types.ModuleType) or is_versioned(value) or value.__name__ in above:
        return
    for name in names:
        if name in vars(value):
            yield from _below(f"{path}.{name}", vars(value)[name], names, {*above, value.__name__})


def _members(kind: type) -> Iterator[object]:
    """Yield what a class and its bases hold, without those of Python and torch."""
    for base in kind.__mro__:
        if base.__module__ == "builtins" or is_versioned(base):
            continue
        for name, member in vars(base).items():
            if name in _SKIPPED or isinstance(member, (types.MemberDescriptorType, type)):
                continue
            if isinstance(member, property):
                yield from (member.fget, member.fset, member.fdel)
            else:
                yield member


def _require_followed(function: types.FunctionType) -> None:
    """See that all that a function reads is named by it, and belongs to no environment.

    Raises:
        UncacheableError: it is not.
    """
    names = set(_names(function.__code__))
    for name in sorted(names & _NOT_FOLLOWED):
        raise UncacheableError(f"{function.__qualname__} reads {name}, which is not looked into")
    imported = {
        str(each.argval).partition(".")[0]
        for code in _codes(function.__code__)
        for each in dis.get_instructions(code)
        if each.opname == "IMPORT_NAME"
    }
    for name in sorted(imported - {"torch", "torch_npu"} - sys.stdlib_module_names):
        raise UncacheableError(f"{function.__qualname__} imports {name} while it runs")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def words_asked_for(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code may look for where they need not be.

    By a text, as `hasattr` and `getattr` do; where an error can be caught by any name.
    """
    for each in _codes(code):
        constants = (item for item in each.co_consts if isinstance(item, str))
        yield from filter(str.isidentifier, constants)
        # Python 3.10 has no table that tells.
        if getattr(each, "co_exceptiontable", b"unknown"):
            yield from each.co_names


def _names(code: types.CodeType) -> Iterator[str]:
    for each in _codes(code):
        yield from each.co_names
