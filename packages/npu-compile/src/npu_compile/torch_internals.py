"""The private names of torch that this package uses; no other file uses any.

Each function says in which versions of torch the name exists and why it is needed.
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import re
from abc import ABCMeta
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

# torch 2.10 to 2.14: what Dynamo makes of an error of a backend; the error itself is inside it.
# torch 2.10 to 2.14: what Dynamo raises where a model is not one graph.
from torch._dynamo.exc import BackendCompilerFailed, Unsupported

# torch 2.10 to 2.14: where `torch.library.register_fake` puts what it is given; nothing public
# tells what an operator's shapes are computed by.
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton as library_registry

# torch 2.10 to 2.14: what operators are, in graphs and as attributes of models.
from torch._ops import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

__all__ = [
    "BackendCompilerFailed",
    "GuardOfDynamo",
    "OpOverload",
    "OpOverloadPacket",
    "Unsupported",
    "codes_compiled_from",
    "compile_telling_guards",
    "fake_function_of",
    "global_state",
    "is_baked_in",
    "mark_dynamic",
    "name_of_operator",
    "num_torch_function_modes",
    "overloads_of",
    "registered_with",
    "schema_of",
    "settings_of_dynamo",
    "traced_code",
    "version_of_settings",
]


_NUM_THREADS: Final = re.compile(r'"num_threads":\d+,?')


class GuardOfDynamo(NamedTuple):
    """A condition that a compiled graph depends on.

    Attributes:
        kind: the check, for instance ``CONSTANT_MATCH``.
        name: a Python expression over ``L`` and ``G``, the locals and globals of the compiled
            function; empty if the check is not about a single value.
        conditions: Python expressions that were true.
    """

    kind: str
    name: str
    conditions: tuple[str, ...]


def mark_dynamic(tensor: torch.Tensor, dimension: int) -> None:
    """Make the size of a dimension symbolic in Dynamo's graphs.

    `torch._dynamo.mark_dynamic`, torch 2.10 to 2.14: documented, but has no other public name.
    """
    torch._dynamo.mark_dynamic(tensor, dimension)


def schema_of(target: object) -> torch.FunctionSchema | None:
    """Return the schema of an operator, or ``None`` for anything else.

    `_schema`, torch 2.10 to 2.14: there is no public API for it.
    """
    return target._schema if isinstance(target, torch._ops.OpOverload) else None


def compile_telling_guards(
    function: Callable[..., Any],
    backend: Callable[..., Any],
    on_guards: Callable[[list[GuardOfDynamo]], None],
) -> Callable[..., Any]:
    """Compile a function with Dynamo as one graph of static sizes, and report its guards.

    `torch._dynamo.optimize` is what `torch.compile` calls. Its `guard_export_fn`, torch 2.10 to
    2.14, is called after each compilation with all guards, before the first run. `torch.compile`
    does not expose it.
    """

    def told(guards: Iterable[Any]) -> None:
        on_guards(
            [
                GuardOfDynamo(
                    each.create_fn_name(),
                    each.name,
                    tuple(each.code_list or ()),
                )
                for each in sorted(guards)
            ]
        )

    context = torch._dynamo.optimize(
        backend=backend, nopython=True, guard_export_fn=told, dynamic=False
    )
    compiled: Callable[..., Any] = context(function)
    return compiled


def codes_compiled_from(function: FunctionType) -> list[CodeType]:
    """Return the code objects that Dynamo runs in place of a function, one per compilation.

    `_debug_get_cache_entry_list`, torch 2.10 to 2.14: there is no public API for it.
    """
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    return [entry.code for entry in entries]


def traced_code() -> list[CodeType]:
    """Return the code objects that Dynamo traced for the current graph; call it from a backend.

    `TracingContext.traced_code`, torch 2.10 to 2.14: vLLM's cache also uses this list.
    """
    context = torch._guards.TracingContext.try_get()
    return [] if context is None else list(context.traced_code)


def settings_of_dynamo() -> dict[str, object]:
    """Return the settings that influence Dynamo's tracing.

    `save_config_portable`, `_compile_ignored_keys`, torch 2.10 to 2.14: used by torch's own caches.
    """
    config: Any = torch._dynamo.config
    values: dict[str, object] = config.save_config_portable()
    return {key: value for key, value in values.items() if key not in config._compile_ignored_keys}


def version_of_settings() -> bytes:
    """Return a value that changes with Dynamo's settings; only comparable within this process.

    `torch._dynamo.config.get_hash`, torch 2.10 to 2.14; recomputed after each change. The order of
    sets differs between processes.
    """
    return torch._dynamo.config.get_hash()


def global_state() -> str:
    """Return the global state of torch that every Dynamo compilation depends on, as JSON.

    It covers gradients, autocast, default dtype, determinism, precision of matrix products, and
    torch functions. The number of threads is omitted: it differs between machines, and no graph
    depends on it. `GlobalStateGuard`, torch 2.10 to 2.14, is what Dynamo compares before each call.
    """
    state: str = torch._C._dynamo.guards.GlobalStateGuard().__getstate__()  # type: ignore[attr-defined]
    return _NUM_THREADS.sub("", state)


def num_torch_function_modes() -> int:
    """Return the number of active torch function modes; a default device is such a mode.

    `torch._C._len_torch_function_stack`, torch 2.10 to 2.14: there is no public API for it.
    """
    return torch._C._len_torch_function_stack()


def name_of_operator(operator: OpOverload) -> str:
    """Return the name of an operator, with its overload after a dot. `name`, torch 2.10 to 2.14."""
    return str(operator.name())  # type: ignore[no-untyped-call]


def overloads_of(packet: OpOverloadPacket) -> list[OpOverload]:
    """Return all overloads of an operator. `overloads`, torch 2.10 to 2.14."""
    return [getattr(packet, name) for name in packet.overloads()]  # type: ignore[no-untyped-call]


def fake_function_of(operator: OpOverload) -> Callable[..., Any] | None:
    """Return the Python function that computes an operator's shapes; ``None`` if it has none."""
    # An overload's own name is tried first, as torch does.
    full_name = name_of_operator(operator)
    for name in (full_name, full_name.partition(".")[0]):
        kernel = library_registry.find(name).fake_impl.kernel
        if kernel is None:
            continue
        return _unwrapped(kernel.func)
    return None


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the registered function without the wrappers that torch.library adds."""
    if not function.__module__.startswith("torch."):
        return function
    for cell in getattr(function, "__closure__", None) or ():
        held = cell.cell_contents
        if isinstance(held, CustomOpDef):
            # Without one of its own the wrapper itself says that nothing is returned.
            return function if held._abstract_fn is None else held._abstract_fn
        if isinstance(held, (FunctionType, MethodType)):
            return _unwrapped(held)
    return function


def is_baked_in(function: object) -> bool:
    """Return whether Dynamo calls a function while tracing and treats its result as a constant.

    Reads the mark set by `torch.compiler.assume_constant_result`, torch 2.10 to 2.14.
    """
    return bool(getattr(function, "_dynamo_marked_constant", False))


def registered_with(kind: type) -> list[type]:
    """Return the classes registered as virtual subclasses of an abstract class.

    Empty for other classes. Python's `_abc._get_dump`, 3.10 to 3.14: no public API lists what
    `ABCMeta.register` was called with.
    """
    if not isinstance(kind, ABCMeta):
        return []
    classes = (reference() for reference in _abc._get_dump(kind)[0])
    return [each for each in classes if each is not None]
