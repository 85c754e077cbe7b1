"""The values that a callable can reach in Python besides its arguments.

These are closures, global variables, bound objects and their attributes. Nothing is called and no
property is read: attributes are looked up where they are stored.
"""

from __future__ import annotations

import argparse
import functools
import sys
import threading
import types
from collections import UserDict, UserList, deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Getter = Callable[[Any, Any], Any]

# Objects that are neither modules nor functions, in one walk. Modules are not counted.
_OBJECTS = 2_000
# How many items of one list are looked at; a dict with more is not looked into.
_ITEMS = 1_000
# Their objects are no state of a model: the packages' own, and what Python and torch run on.
_OURS = frozenset(
    {"npu_graph_runtime", "attn_update", "npu_compile", "vllm_npu_graph", "sglang_npu_graph"}
    | {"torch", "torch_npu"}
)
# Those of which objects hold a model, or a function that does.
_WRAPPERS = frozenset({"npu_graph_runtime", "npu_compile"})
# Classes of Python's library whose objects hold what a model puts there.
_HOLDERS = (types.SimpleNamespace, argparse.Namespace, threading.local, UserDict, UserList)
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)


class Place(NamedTuple):
    """Where a value is stored, and how to reach it from a root.

    Attributes:
        path: path for messages, such as ``layers.0.weight``.
        steps: steps of the walk, each a function and its argument.
    """

    path: str
    steps: tuple[tuple[Getter, Any], ...]

    def read(self, root: object) -> object:
        """Return the value stored there now; ``None`` if the path no longer exists."""
        value = root
        try:
            for getter, key in self.steps:
                value = getter(value, key)
        except (LookupError, AttributeError, ValueError, TypeError):
            return None
        return value

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter or buffer of a module."""
        getter, key = self.steps[-1]
        return getter is _member and key[0] != "_modules"


def reachable_values(root: object) -> Iterator[tuple[Place, object, object]]:
    """Yield (place, holder, value) for each value reachable from an object, nearest first."""
    seen = {id(root)}
    waiting: deque[tuple[Place, object]] = deque([(Place("", ()), root)])
    num_objects = 0
    while waiting and num_objects < _OBJECTS:
        place, holder = waiting.popleft()
        num_objects += not isinstance(holder, nn.Module)
        for text, getter, key, value in _parts(holder, root):
            path = f"{place.path}{text}" if place.path else text.removeprefix(".")
            found = Place(path, (*place.steps, (getter, key)))
            yield found, holder, value
            if isinstance(value, (*_ATOMS, Tensor)) or id(value) in seen:
                continue
            seen.add(id(value))
            waiting.append((found, value))


def outermost_modules(root: object) -> Iterator[nn.Module]:
    """Yield the modules reachable from an object, but not those inside of other modules."""
    inside: set[int] = set()
    for _, holder, value in reachable_values(root):
        if isinstance(holder, nn.Module) or id(holder) in inside:
            inside.add(id(value))
        elif isinstance(value, nn.Module):
            yield value


def _parts(holder: Any, root: object) -> Iterator[tuple[str, Getter, Any, object]]:  # noqa: C901, PLR0912
    if isinstance(holder, nn.Module):
        yield from _module_parts(holder)
    elif isinstance(holder, (list, tuple, deque)):
        for index, item in enumerate(islice(holder, _ITEMS)):
            yield f"[{index}]", _item, index, item
    elif isinstance(holder, dict):
        # In one step: other threads may write it.
        for key, item in list(holder.items()) if len(holder) <= _ITEMS else ():
            yield f"[{key!r}]", _item, key, item
    elif isinstance(holder, types.MethodType):
        yield "", _attribute, "__self__", holder.__self__
        yield "", _attribute, "__func__", holder.__func__
    elif isinstance(holder, functools.partial):
        yield "", _attribute, "func", holder.func
        yield ".args", _attribute, "args", holder.args
        yield ".keywords", _attribute, "keywords", holder.keywords
    elif isinstance(holder, types.FunctionType):
        yield from _function_parts(holder, root)
    elif "__wrapped__" in getattr(holder, "__dict__", ()):
        yield "", _attribute, "__wrapped__", holder.__wrapped__
    elif isinstance(holder, _HOLDERS) or is_of_a_model(holder):
        yield from _attributes(holder)
    elif _package(holder) in _WRAPPERS:
        for part in _attributes(holder):
            if isinstance(part[-1], (nn.Module, types.FunctionType, types.MethodType)):
                yield part


def _module_parts(module: nn.Module) -> Iterator[tuple[str, Getter, Any, object]]:
    stored = vars(module)
    for part in ("_parameters", "_buffers", "_modules"):
        for name, value in list(stored.get(part, {}).items()):
            yield f".{name}", _member, (part, name), value
    if _package(module) not in _OURS:
        yield from _attributes(module)


def _function_parts(
    function: types.FunctionType, root: object
) -> Iterator[tuple[str, Getter, Any, object]]:
    code = function.__code__
    for index, name in enumerate(code.co_freevars):
        value = _cell(function, index)
        if value is not None:
            yield f".{name}", _cell, index, value
    if root is not function and _package(function) in _OURS:
        return
    for name in _names(code):
        value = function.__globals__.get(name)
        # A function of another file is that file's business.
        is_foreign = getattr(value, "__globals__", function.__globals__) is not function.__globals__
        if value is not None and not is_foreign:
            yield f".{name}", _global, name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _attributes(holder: Any) -> Iterator[tuple[str, Getter, Any, object]]:
    is_module = isinstance(holder, nn.Module)
    for name, value in list(getattr(holder, "__dict__", {}).items()):
        if is_module and name in _MODULES_OWN:
            continue
        yield f".{name}", _attribute, name, value
    for kind in type(holder).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            value = getattr(holder, name, None)
            if value is not None and name != "__dict__":
                yield f".{name}", _attribute, name, value


_MODULES_OWN = frozenset(vars(nn.Module()))


def _package(value: Any) -> str:
    owner = value if isinstance(value, (types.FunctionType, type)) else type(value)
    return str(owner.__module__).partition(".")[0]


def is_of_a_model(value: object) -> bool:
    """Return whether an object or class belongs neither to Python, torch nor these packages."""
    package = _package(value)
    return package == "__main__" or (
        package not in _OURS and package not in sys.stdlib_module_names and package != "numpy"
    )


def _attribute(holder: Any, name: str) -> Any:
    stored = getattr(holder, "__dict__", {})
    return stored[name] if name in stored else getattr(holder, name)


def _item(holder: Any, key: Any) -> Any:
    return holder[key]


def _cell(function: Any, index: int) -> Any:
    try:
        return function.__closure__[index].cell_contents
    except ValueError:
        return None  # not assigned yet


def _global(function: Any, name: str) -> Any:
    return function.__globals__[name]


def _member(module: Any, part_and_name: tuple[str, str]) -> Any:
    part, name = part_and_name
    return vars(module)[part][name]
