"""The signature that selects a call's graph: tensor layouts, plain values, containers, modes."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from npu_graph_runtime.capturing.plain_values import is_plain, snapshot
from npu_graph_runtime.capturing.tensor_leaves import leaves, map_items, named_arguments
from npu_graph_runtime.errors import UnsupportedInputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

_TENSORS = frozenset({Tensor, nn.Parameter})
# Equal where their values and their types are equal.
_HASHED = frozenset(
    {int, bool, str, bytes, type(None), range, torch.dtype, torch.device, torch.layout}
    | {torch.memory_format, torch.Size}
)
# They say how to compile a tensor, such as `mark_dynamic`.
_MARKS_OF_DYNAMO = ("_dynamo_", "_has_dynamo_", "_specialize_on")


class Flattened(NamedTuple):
    """Nested values, flattened.

    Attributes:
        structure: containers with their types, keys and lengths, and all values except tensors.
            Equal structures mean that a function which looks at nothing else does the same.
        tensors: the tensors in order.
    """

    structure: tuple[Hashable, ...]
    tensors: list[Tensor]


def flatten(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flattened:
    """Flatten the arguments of a call.

    Raises:
        UnsupportedInputError: A value is neither a tensor, nor a container, nor plain, or it has
            attributes besides. The error has no path; :func:`unsupported` returns it.
    """
    structure: list[Hashable] = [len(args)]
    tensors: list[Tensor] = []
    for value in args:
        if type(value) in _TENSORS and not value.__dict__:
            tensors.append(value)
            structure.append(Tensor)
        else:
            _add(value, structure, tensors)
    for name, value in kwargs.items():
        structure.append(name)
        _add(value, structure, tensors)
    return Flattened(tuple(structure), tensors)


def layouts(tensors: list[Tensor]) -> tuple[Hashable, ...]:
    """Return the layouts of tensors, and which of them are the same object."""
    found: list[Hashable] = []
    for tensor in tensors:
        found += (
            type(tensor),
            tensor.shape,
            tensor.stride() if tensor.layout is torch.strided else tensor.layout,
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            tensor.is_neg() or tensor.is_conj(),
        )
    if len(set(map(id, tensors))) < len(tensors):
        first: dict[int, int] = {}
        found += [first.setdefault(id(tensor), index) for index, tensor in enumerate(tensors)]
    return tuple(found)


def modes(device_type: str) -> tuple[Hashable, ...]:
    """Return the modes of torch that influence what a function launches."""
    is_autocast = torch.is_autocast_enabled(device_type)
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_autocast_dtype(device_type) if is_autocast else None,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def unsupported(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the argument that cannot be part of a signature, for messages."""
    for name, value in named_arguments(args, kwargs).items():
        for path, leaf in leaves(value, name):
            problem = _problem(leaf)
            if problem is not None:
                return f"{path} is {problem}"
        problem = _problem(value)
        if problem is not None:
            return f"{name} is or holds {problem}"
    return "an argument cannot be hashed"


def rebuilt(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return nested values with other tensors, in new containers.

    ``tensors`` has one for each tensor in ``value``, in order.

    Raises:
        TypeError: A container cannot be rebuilt from its items.
    """
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, (list, tuple, dict)) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        return map_items(value, lambda item: rebuilt(item, tensors))
    return snapshot(value)


def _problem(value: object) -> str | None:
    try:
        _add(value, [], [])
    except UnsupportedInputError as error:
        return str(error)
    return None


def _require_no_attributes(value: Any) -> None:
    """Reject what a buffer or a container that is rebuilt from its items would not have.

    Raises:
        UnsupportedInputError: An object has attributes that are neither items nor fields.
    """
    stored = getattr(value, "__dict__", None)
    if not stored:
        return
    kind = type(value)
    known: set[Any] = set(value) if isinstance(value, dict) else set()
    if dataclasses.is_dataclass(value):
        known.update(field.name for field in dataclasses.fields(value))
    for name in stored.keys() - known:
        # A cached property is computed again.
        is_derived = isinstance(getattr(kind, name, None), functools.cached_property)
        if not (is_derived or name.startswith(_MARKS_OF_DYNAMO)):
            raise UnsupportedInputError(f"a {kind.__name__} with an attribute of its own ({name})")


def _add(value: Any, structure: list[Hashable], tensors: list[Tensor]) -> None:
    """Flatten one value, as `leaves` does."""
    kind: Any = type(value)
    if kind in _TENSORS:
        _require_no_attributes(value)
        tensors.append(value)
        structure.append(Tensor)
    elif kind in _HASHED or isinstance(value, enum.Enum):
        structure += (kind, value)
    elif kind is float:
        # Zeros of two signs are equal, and NaN is equal to nothing.
        structure += (float, value.hex())
    elif isinstance(value, (list, tuple)):
        _require_no_attributes(value)
        structure += (kind, len(value))
        for item in value:
            _add(item, structure, tensors)
    elif isinstance(value, dict):
        _require_no_attributes(value)
        structure += (kind, len(value))
        for key, item in value.items():
            kind = type(key)
            structure += (kind, key)
            _add(item, structure, tensors)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _require_no_attributes(value)
        structure.append(kind)
        for field in dataclasses.fields(value):
            _add(getattr(value, field.name), structure, tensors)
    else:
        _add_rare(value, kind, structure)


def _add_rare(value: Any, kind: Any, structure: list[Hashable]) -> None:
    if isinstance(value, Tensor) or not is_plain(value):
        raise UnsupportedInputError(f"of type {kind.__name__}")
    if isinstance(value, complex):
        structure += (kind, value.real.hex(), value.imag.hex())
    elif kind is slice:
        parts: list[Hashable] = [slice]
        _add((value.start, value.stop, value.step), parts, [])
        structure += parts
    elif isinstance(value, set):
        structure += (kind, frozenset(value))
    elif isinstance(value, bytearray):
        structure += (kind, bytes(value))
    elif hasattr(value, "dtype") and hasattr(value, "tobytes"):
        if value.dtype.hasobject:
            raise UnsupportedInputError("a NumPy array of objects")
        structure += (kind, str(value.dtype), value.shape, value.tobytes())
    elif isinstance(value, float):
        structure += (kind, value.hex())
    else:
        try:
            hash(value)
        except TypeError as error:
            raise UnsupportedInputError(f"of type {kind.__name__}") from error
        structure.append(kind)
        structure.append(value)
