"""What the inputs of a captured graph were at capture, and whether they still are that."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from npu_graph_runtime.capturing.tensor_leaves import leaves
from npu_graph_runtime.errors import InputAddressError
from npu_graph_runtime.torch_internals import layout_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npu_graph_runtime.capturing.native.native_comparison import Holds, NativeComparison


class AddressCheck(enum.Enum):
    """When the inputs of a replay are compared with those of the capture.

    A captured graph has the addresses and layouts of its input tensors and the values of all other
    inputs in it. If one of them differs the replay computes with old data, and nothing else would
    say so.
    """

    ALWAYS = "always"
    """At every replay: some 20 ns an input in C, ten times as much without a C compiler."""

    FIRST_REPLAY = "first_replay"
    """At the first replay of each graph only."""

    NEVER = "never"
    """Not at all: the caller vouches for its buffers."""


_data_ptr: Callable[[Any], int] = Tensor.data_ptr

# How often layouts are guarded anew because the modes of torch have changed, inference mode say.
_GUARDS = 3

# What a graph has baked in and what can be compared at once. Others may have any `==`.
_PLAIN_VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    enum.Enum,
    torch.dtype,
    torch.device,
)


def is_plain(value: object) -> bool:
    """Return whether a value is one that a graph bakes in and that can be compared."""
    return isinstance(value, _PLAIN_VALUES)


class InputLayout:
    """What a capture has baked in of its arguments: addresses, layouts and plain values.

    Holds no tensor. Lists, tuples, dicts and dataclasses are looked into, positional and keyword
    arguments alike. Of values other than tensors numbers, texts, ``None``, enum members, dtypes and
    devices are compared, each with its type, since ``True`` and ``1`` may launch other kernels;
    objects of other types are not looked at.

    Args:
        args: positional arguments of the capture.
        kwargs: keyword arguments of the capture.
        subject: what was captured, for messages.
        native: compares in C; ``None`` compares in Python.

    Attributes:
        holds: takes the positional arguments of a call without others, as a tuple, and returns
            true where :meth:`check` would find nothing. False says nothing yet.
    """

    __slots__ = ("_baked", "_holds", "_keywords", "_subject", "holds")

    def __init__(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        subject: str,
        native: NativeComparison | None = None,
    ) -> None:
        self._subject = subject
        self._baked = _baked(args, kwargs)
        self._keywords = tuple(kwargs)
        values = (*args, *kwargs.values())
        holds: Holds | None = None
        if any(_is_nested(value) for value in values):
            holds = _never
        elif native is not None:
            holds = native.holds(values, is_plain)
        self._holds = holds or _PythonComparison(values).holds
        self.holds = _never if kwargs else self._holds

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Compare a replay's arguments with those of the capture.

        Raises:
            InputAddressError: a tensor lies elsewhere or is laid out differently, another value
                differs, or there are more or fewer inputs.
        """
        if tuple(kwargs) != self._keywords or not self._holds((*args, *kwargs.values())):
            self._compare(args, kwargs)

    def _compare(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        found = _baked(args, kwargs)
        differences = [
            f"{path} is {described} now, expected nothing there"
            for path, described in found.items()
            if path not in self._baked
        ]
        for path, expected in self._baked.items():
            now = found.get(path)
            if now is None:
                differences.append(f"{path} is nothing to compare now, expected {expected}")
            elif now != expected:
                differences.append(f"{path} is {now}, expected {expected}")
        if differences:
            raise InputAddressError(
                f"replaying {self._subject}: {len(differences)} of {len(self._baked)} inputs "
                f"differ from the capture: {'; '.join(differences)}; copy the new values into the "
                "buffers used at capture, let the graph key say what else selects a graph, or "
                "release the graph and capture it again"
            )


class _PythonComparison:
    """Compares values with those of a capture, none of them nested.

    Args:
        values: of the capture; their tensors are not kept.
    """

    __slots__ = (
        "_addresses",
        "_dtypes",
        "_guard",
        "_guards_left",
        "_num_values",
        "_others_at",
        "_shapes",
        "_strides",
        "_tensors_at",
    )

    def __init__(self, values: tuple[Any, ...]) -> None:
        tensors = [value for value in values if isinstance(value, Tensor)]
        self._num_values = len(values)
        self._tensors_at = [
            index for index, value in enumerate(values) if isinstance(value, Tensor)
        ]
        self._others_at = [
            (index, type(value), is_plain(value), value if is_plain(value) else None)
            for index, value in enumerate(values)
            if not isinstance(value, Tensor)
        ]
        self._addresses = [tensor.data_ptr() for tensor in tensors]
        self._shapes = [tensor.shape for tensor in tensors]
        self._strides = [tensor.stride() for tensor in tensors]
        self._dtypes = [tensor.dtype for tensor in tensors]
        # Made when they were compared for the first time, in the modes of torch that hold there.
        self._guard: Callable[..., bool] | None = None
        self._guards_left = _GUARDS if tensors else 0

    def holds(self, values: tuple[Any, ...]) -> bool:
        """Return whether nothing differs; false for a closer look."""
        if len(values) != self._num_values:
            return False
        tensors = values if not self._others_at else [values[index] for index in self._tensors_at]
        guard = self._guard
        if (
            guard is not None
            and guard(*tensors)
            and list(map(_data_ptr, tensors)) == self._addresses
            and self._holds_others(values)
        ):
            return True
        try:
            is_same = (
                [tensor.data_ptr() for tensor in tensors] == self._addresses
                and [tensor.shape for tensor in tensors] == self._shapes
                and [tensor.stride() for tensor in tensors] == self._strides
                and [tensor.dtype for tensor in tensors] == self._dtypes
                and self._holds_others(values)
            )
        except AttributeError:
            return False  # no tensor any more
        if is_same and self._guards_left:
            self._guards_left -= 1
            self._guard = layout_guard(tensors)
        return is_same

    def _holds_others(self, values: Sequence[Any]) -> bool:
        return all(
            type(values[index]) is kind and (not is_compared or values[index] == value)
            for index, kind, is_compared, value in self._others_at
        )


def _never(values: tuple[object, ...]) -> bool:
    """Ask for a closer look at any values."""
    del values
    return False


def _is_nested(value: object) -> bool:
    return isinstance(value, (list, tuple, dict)) or dataclasses.is_dataclass(value)


def _baked(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, str]:
    """Return by its path what a graph bakes in of each input."""
    baked: dict[str, str] = {}
    for index, value in enumerate(args):
        baked.update(_described_leaves(value, f"args[{index}]"))
    for name, value in kwargs.items():
        baked.update(_described_leaves(value, name))
    return baked


def _described_leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    for leaf_path, leaf in leaves(value, path):
        if isinstance(leaf, Tensor):
            shape, stride = tuple(leaf.shape), leaf.stride()
            address = f"{leaf.data_ptr():#x}"
            described = f"a tensor of {leaf.dtype}, shape {shape}, stride {stride} at {address}"
            yield leaf_path, described
        elif is_plain(leaf):
            yield leaf_path, f"{leaf!r} ({type(leaf).__name__})"
