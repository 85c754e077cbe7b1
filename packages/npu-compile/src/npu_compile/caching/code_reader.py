"""Hashes functions and classes in memory by what they do, not by where they are defined."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
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
    from collections.abc import Callable, Iterator, Mapping

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
_OF_A_CALL: Final = ("__call__", "__getattr__", "_call_impl", "_wrapped_call_impl", "forward")
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
    """Return text that is equal for equal constants of equal types; ``None`` for anything else."""
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
        codes: all code objects included in hashes so far, with nested ones.
        absent: modules of functions, by address, with names that the functions use and the modules
            do not define, such as built-ins.
    """

    def __init__(self) -> None:
        self.codes: set[types.CodeType] = set()
        self.absent: dict[int, tuple[dict[str, Any], set[str]]] = {}
        # The objects are kept too: an address means nothing when what was there is gone.
        self._known: dict[int, tuple[object, str]] = {}

    def function(self, function: types.FunctionType) -> str:
        """Return the hash of a function: its code, its defaults, and its closure variables.

        Of other objects in these, their type counts, not their content.

        Raises:
            UncacheableError: Dynamo treats the function's result as a constant.
        """
        if is_baked_in(function):
            raise UncacheableError(
                f"what {function.__qualname__} returned is a constant of the graph "
                "(torch.compiler.assume_constant_result)"
            )
        return self._once(function, lambda: self._function(function))

    def class_(self, kind: type) -> str:
        """Return the hash of a class and all its bases: methods and constants."""
        return self._once(kind, lambda: self._class(kind))

    def function_and_all_it_reads(self, function: Callable[..., Any]) -> str:
        """Return the hash of a function that Dynamo did not trace, and of everything it may call.

        This includes the globals it names, and modules, functions and classes in full, except those
        of Python and torch, which are identified by their versions.

        Raises:
            UncacheableError: It reads something that cannot be compared.
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
            *sorted(self._absent_names(function)),
            *(self._member(value) for value in function.__defaults__ or ()),
            "keywords",
            *(
                f"{name}={self._member(value)}"
                for name, value in (function.__kwdefaults__ or {}).items()
            ),
            "closure",
            *(self._member(value) for value in _cells(function)),
        )

    def _absent_names(self, function: types.FunctionType) -> set[str]:
        module = function.__globals__
        if is_versioned_name(module.get("__name__")):
            return set()
        names = set(_names(function.__code__)) - module.keys()
        self.absent.setdefault(id(module), (module, set()))[1].update(names)
        return names

    def _class(self, kind: type) -> str:
        parts = registered_classes(kind)
        metaclass: type = type(kind)
        for base in (*kind.__mro__, *metaclass.__mro__):
            parts.append(name_of_class(base))
            parts += [f"{name}={self._member(each)}" for name, each in compared_members(base)]
        return _digest(*parts)

    def _member(self, value: object) -> str:
        text = plain_text(value)
        if text is not None:
            return text
        if isinstance(value, types.FunctionType):
            return self._once(value, lambda: self._function(value))
        if isinstance(value, type):
            return name_of_class(value)
        inner = value if type(value) is tuple else _parts_of(value)
        return f"{name_of_class(type(value))}({', '.join(map(self._member, inner))})"

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
    """Return the names of the classes registered as virtual subclasses of an abstract class.

    Those of Python, torch and torch_npu are omitted.
    """
    return sorted(name_of_class(each) for each in registered_with(kind) if not is_versioned(each))


def is_versioned(item: object) -> bool:
    """Return whether the version of Python, torch or torch_npu determines an object.

    False for an instance of one of their classes, whose content they do not determine.
    """
    if isinstance(item, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        return True
    if not isinstance(item, _NAMED):
        return False
    is_module = isinstance(item, types.ModuleType)
    return is_versioned_name(item.__name__ if is_module else getattr(item, "__module__", ""))


def is_versioned_name(module: object) -> bool:
    """Return whether the version of Python, torch or torch_npu determines a module."""
    package = str(module).partition(".")[0]
    return package in {"torch", "torch_npu"} or package in sys.stdlib_module_names


def is_versioned_file(path: str, own_folders: tuple[str, ...] = ()) -> bool:
    """Return whether the content of a file is included in the cache key."""
    if "site-packages" not in path and "dist-packages" not in path:
        standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        if path.startswith(tuple(f"{folder}/" for folder in standard)):
            return True
    packages = (sys.modules[name] for name in ("torch", "torch_npu") if name in sys.modules)
    folders = (*(str(Path(str(each.__file__)).parent) for each in packages), *own_folders)
    return path.startswith(("<frozen ", *(f"{folder}/" for folder in folders)))


def compared_members(kind: type) -> list[tuple[str, object]]:
    """Return the members of a class that determine its behaviour, ordered by name.

    For a class of Python or torch these are members that were replaced or added, non-functions, and
    the entry points of a call. Its other methods follow from the version. torch_npu and Dynamo
    replace some of them when they are first used, which does not change graphs.
    """
    if kind.__module__ == "builtins":
        return []
    members = [(name, each) for name, each in vars(kind).items() if name not in _SKIPPED]
    if is_versioned(kind):
        members = [each for each in members if not _is_as_released(kind, *each)]
    return sorted(members, key=lambda each: each[0])


def _is_as_released(kind: type, name: str, member: object) -> bool:
    if name.startswith("___"):  # Dynamo's own
        return True
    functions: dict[int, types.FunctionType] = {}
    _collect_functions(member, functions)
    if name in _OF_A_CALL or not functions:
        return False
    home = getattr(sys.modules.get(kind.__module__), "__file__", None)
    outer, *inner = functions.values()
    path = outer.__code__.co_filename
    # By the files of the code: any wrapper can have the name of what it wraps.
    is_at_home = path == home and outer.__qualname__ == f"{kind.__qualname__}.{name}"
    return (is_at_home or _is_put_in_later(path)) and all(
        is_versioned_file(each.__code__.co_filename) for each in inner
    )


def _is_put_in_later(path: str) -> bool:
    """Return whether a function's file modifies classes of torch on first use."""
    folder = f"{Path(torch.__file__).parent}/"
    npu = sys.modules.get("torch_npu")
    return path.startswith(
        (f"{folder}_dynamo/", f"{folder}utils/backend_registration.py")
        + (() if npu is None else (f"{Path(str(npu.__file__)).parent}/",))
    )


def _collect_functions(value: object, found: dict[int, types.FunctionType]) -> None:
    """Add the functions that a class member runs through descriptors, wrappers and closures."""
    if isinstance(value, types.FunctionType):
        if id(value) not in found:
            found[id(value)] = value
            for each in (*_cells(value), vars(value).get("__wrapped__")):
                _collect_functions(each, found)
        return
    for each in value if type(value) is tuple else _parts_of(value):
        _collect_functions(each, found)


def _parts_of(value: object) -> tuple[object, ...]:
    """Return the function that a descriptor, bound method or wrapper calls, and bound values."""
    if isinstance(value, property):
        return (value.fget, value.fset, value.fdel)
    if isinstance(value, types.MethodType):
        return (value.__func__, type(value.__self__))
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, (functools.partial, functools.partialmethod)):
        return (value.func, value.args, tuple(sorted(value.keywords.items())))
    inner = inspect.getattr_static(value, "__wrapped__", None)
    return () if inner is None else (inner,)


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
    """Yield the globals that a function names, also through modules without a version."""
    names = dict.fromkeys(_names(function.__code__))

    def inside(
        module: Mapping[str, object], path: str, above: frozenset[str]
    ) -> Iterator[tuple[str, object]]:
        for name in filter(module.__contains__, names):
            value = module[name]
            yield f"{path}{name}", value
            if isinstance(value, types.ModuleType) and not is_versioned(value):
                within = above | {value.__name__}
                if within != above:
                    yield from inside(vars(value), f"{path}{name}.", within)

    yield from inside(function.__globals__, "", frozenset())


def _members(kind: type) -> Iterator[object]:
    """Yield the members of a class and its bases, except those of Python and torch."""
    for base in kind.__mro__:
        if not is_versioned(base):
            for _, member in compared_members(base):
                if not isinstance(member, (types.MemberDescriptorType, type)):
                    yield from _parts_of(member) or (member,)


def _require_followed(function: types.FunctionType) -> None:
    """Check that everything a function reads is named by it and is not part of the environment.

    Raises:
        UncacheableError: It is not.
    """
    names = set(_names(function.__code__))
    for name in sorted(names & _NOT_FOLLOWED):
        raise UncacheableError(f"{function.__qualname__} reads {name}, which is not looked into")
    imported = {
        str(each.argval).partition(".")[0]
        for code in codes_of(function.__code__)
        for each in dis.get_instructions(code)
        if each.opname == "IMPORT_NAME"
    }
    for name in sorted(imported - {"torch", "torch_npu"} - sys.stdlib_module_names):
        raise UncacheableError(f"{function.__qualname__} imports {name} while it runs")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and the nested ones."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def words_asked_for(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code may look up although they may not exist.

    For example as strings, by `hasattr` and `getattr`, or any name if errors can be caught.
    """
    for each in codes_of(code):
        constants = (item for item in each.co_consts if isinstance(item, str))
        yield from filter(str.isidentifier, constants)
        # Python 3.10 has no table that tells.
        if getattr(each, "co_exceptiontable", b"unknown"):
            yield from each.co_names


def _names(code: types.CodeType) -> Iterator[str]:
    for each in codes_of(code):
        yield from each.co_names
