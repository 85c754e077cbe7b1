"""The content of a value that a compilation depends on, as text: equal texts, equal graphs."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from npu_compile.caching.code_reader import name_of_class, plain_text
from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.torch_internals import (
    OpOverload,
    OpOverloadPacket,
    fake_function_of,
    schema_of,
)

if TYPE_CHECKING:
    from npu_compile.caching.code_reader import CodeReader

# Operators of these come with torch or torch_npu, whose versions are in the key of the cache.
_VERSIONED_NAMESPACES: Final = frozenset(
    {"_c10d_functional", "aten", "c10d", "npu", "prim", "prims", "quantized"}
)
# Kinds of guards that ask for no more of an object than its class and its attributes' names.
_OF_CLASS: Final = frozenset(
    {
        "DICT_CONTAINS",
        "DICT_NOT_CONTAINS",
        "DUPLICATE_INPUT",
        "HASATTR",
        "NOT_NONE_MATCH",
        "NOT_PRESENT_IN_GENERIC_DICT",
        "SEQUENCE_LENGTH",
        "TYPE_MATCH",
    }
)
_OF_KEYS: Final = frozenset({"DICT_KEYS_MATCH", "EMPTY_NN_MODULE_HOOKS_DICT", "MAPPING_KEYS_CHECK"})
# Their own text tells which they are; that of an enumeration's member is free.
_SHOWN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype)
_DICTS: Final = (dict, OrderedDict, defaultdict, types.MappingProxyType)
_BUILTIN: Final = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.ClassMethodDescriptorType,
)


class Content(NamedTuple):
    """The content of one value as text, and how it is compared again, see `ValueChecks`."""

    kind: str
    text: str


def content_of(  # noqa: PLR0911 - one answer for each kind of value
    value: Any, kinds: frozenset[str], reader: CodeReader
) -> Content:
    """Return the content that a compilation depends on if it read this value for these checks.

    Raises:
        UncacheableError: The value has no kind that another process can compare.
    """
    text = plain_text(value)
    if text is not None:
        kind = "constant" if type(value) in _SHOWN else "text"
        return Content(kind, f"{name_of_class(type(value))} {text}")
    if isinstance(value, (torch.Tensor, torch.nn.Module)) and "ID_MATCH" in kinds:
        raise UncacheableError("it is compared by its address")
    if isinstance(value, torch.Tensor):
        return Content("tensor", repr(tensor_layout(value)))
    named = _text_of_named(value, reader)
    if named is not None:
        return Content("object", named)
    if isinstance(value, types.FunctionType):
        text = f"function {value.__qualname__} {reader.function(value)}"
        return Content("function", f"{text} with {', '.join(vars(value))}")
    if isinstance(value, types.MethodType):
        return Content("method", f"method {reader.function(value.__func__)}")  # type: ignore[arg-type]
    kind = f"{name_of_class(type(value))} {reader.class_(type(value))}"
    if isinstance(value, torch.nn.Module):
        return Content("attributes", f"{kind} with {', '.join(vars(value))}")
    return _container_or_object(value, kind, kinds)


def _text_of_named(value: object, reader: CodeReader) -> str | None:
    """Return text for an object that its name identifies; ``None`` for anything else."""
    if isinstance(value, (OpOverload, OpOverloadPacket)):
        return f"operator {value}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return f"class {name_of_class(value)} {reader.class_(value)}"
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__module__", None) or getattr(value, "__objclass__", "")
        return f"builtin {owner} {value.__qualname__}"
    return None


def _container_or_object(value: Any, kind: str, kinds: frozenset[str]) -> Content:
    if not kinds <= _OF_CLASS | _OF_KEYS:
        asked = ", ".join(sorted(kinds - _OF_CLASS))
        raise UncacheableError(f"it is one {name_of_class(type(value))}, compared by {asked}")
    if type(value) in _DICTS:
        keys = [plain_text(key) for key in value]
        if None in keys:
            raise UncacheableError("its keys are no constants")
        return Content("keys", f"{kind} of {', '.join(map(str, keys))}")
    if type(value) in {tuple, list}:
        return Content("elements", f"{kind} of {', '.join(name_of_class(type(x)) for x in value)}")
    asks_names = kinds & {"HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"} or hasattr(
        type(value), "__getattr__"
    )
    if asks_names and hasattr(value, "__dict__"):
        return Content("attributes", f"{kind} with {', '.join(vars(value))}")
    if isinstance(value, (set, frozenset)) or hasattr(value, "__len__"):
        raise UncacheableError(f"it is a {name_of_class(type(value))}, whose elements may matter")
    return Content("instance", kind)


def tensor_layout(tensor: torch.Tensor, dynamic_dims: tuple[int, ...] = ()) -> tuple[object, ...]:
    """Return the properties of a tensor that a graph may depend on, as plain values.

    Args:
        tensor: a dense tensor of torch's own classes.
        dynamic_dims: dimensions whose size is symbolic in the graph if it is above 1.

    Raises:
        UncacheableError: It has another class or layout, or strides that change with its dynamic
            sizes.
    """
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
        raise UncacheableError(f"it is a tensor of class {name_of_class(type(tensor))}")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise UncacheableError(f"its layout is {tensor.layout}")
    shape: tuple[int | None, ...] = tuple(tensor.shape)
    strides: tuple[int, ...] | None = tensor.stride()
    if any(shape[dim] != 1 and shape[dim] != 0 for dim in dynamic_dims):
        if not tensor.is_contiguous():
            raise UncacheableError("it has a dynamic size and is not contiguous")
        strides = None
        shape = tuple(
            None if dim in dynamic_dims and (size or 0) > 1 else size
            for dim, size in enumerate(shape)
        )
    return (
        name_of_class(type(tensor)),
        str(tensor.dtype),
        str(tensor.device),
        shape,
        strides,
        tensor.requires_grad,
        tensor.is_inference(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def operator_content(operator: OpOverload, reader: CodeReader) -> str:
    """Return the content of an operator that a graph depends on: its schema and fake function.

    Raises:
        UncacheableError: The function that computes its shapes cannot be compared.
    """
    function = fake_function_of(operator)
    schema = str(schema_of(operator))
    if function is None:
        if operator.namespace not in _VERSIONED_NAMESPACES:
            raise UncacheableError(
                f"the shapes of operator {operator} are not computed by a function of "
                "torch.library.register_fake, so it cannot be shown when they change"
            )
        return schema
    try:
        return f"{schema} {reader.function_and_all_it_reads(function)}"
    except UncacheableError as error:
        raise UncacheableError(
            f"the shapes of operator {operator} are computed by {function.__qualname__}, and "
            f"{error}"
        ) from error
