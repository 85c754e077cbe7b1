"""The inputs of a captured graph, and whether those of a replay match them."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from npu_graph_runtime.capturing.plain_values import (
    is_plain,
    needs_a_look,
    same_value,
    snapshot,
)
from npu_graph_runtime.capturing.tensor_leaves import leaves, named_arguments
from npu_graph_runtime.capturing.weak_tensor import lazy_bits
from npu_graph_runtime.errors import InputAddressError
from npu_graph_runtime.torch_internals import layout_guard

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npu_graph_runtime.capturing.native.native_comparison import Holds, NativeComparison


class AddressCheck(enum.Enum):
    """When the inputs of a replay are compared with those of the capture.

    A captured graph contains the addresses and layouts of its input tensors and the values of all
    other inputs. If one of them differs, the replay silently computes with old data.
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


class InputLayout:
    """The arguments of a capture: addresses, layouts and plain values.

    Keeps no tensor alive. Lists, tuples, dicts and dataclasses are inspected, in positional and
    keyword arguments. Other values than tensors are compared with their types, because ``True`` and
    ``1`` may launch different kernels; see `is_plain`. Objects that are equal only to themselves
    are ignored.

    A replay may also compare memory that belongs to no argument: one tensor each time, in turn.

    Args:
        args: positional arguments of the capture.
        kwargs: keyword arguments of the capture.
        subject: what was captured, for messages.
        native: compares in C; ``None`` compares in Python.
        in_turn: tensors and their addresses, one of which is compared at each replay.
        on_moved: called if one of them has another address; raises if that is an error.
        is_compared: whether arguments are compared, or only those tensors.

    Attributes:
        holds: called with the positional arguments of a call without keyword arguments, as a tuple.
            True means that :meth:`check` would find nothing; false means unknown.
    """

    __slots__ = (
        "_baked",
        "_holds",
        "_holds_others",
        "_is_compared",
        "_keywords",
        "_on_moved",
        "_subject",
        "holds",
    )

    def __init__(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        subject: str,
        native: NativeComparison | None = None,
        *,
        in_turn: Sequence[tuple[weakref.ref[Tensor], int]] = (),
        on_moved: Callable[[], None] | None = None,
        is_compared: bool = True,
    ) -> None:
        self._subject = subject
        self._baked = _baked(args, kwargs)
        self._keywords = tuple(kwargs)
        self._is_compared = is_compared
        self._on_moved = on_moved
        values = (*args, *kwargs.values())
        holds: Holds | None = None
        if is_compared and any(_is_nested(value) or needs_a_look(value) for value in values):
            holds = _never
        elif native is not None:
            holds = native.holds(values if is_compared else None, is_plain, in_turn)
        self._holds = holds or _PythonComparison(values if is_compared else None, in_turn).holds
        # Where arguments always want a closer look, the others have to be compared apart.
        self._holds_others = _PythonComparison(None, in_turn).holds if holds is _never else _never
        self.holds = _never if kwargs and is_compared else self._holds

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Compare a replay's arguments with those of the capture.

        Raises:
            InputAddressError: A tensor has another address or layout, another value differs, or the
                number of inputs differs.
        """
        if self._is_compared:
            if tuple(kwargs) == self._keywords and self._holds((*args, *kwargs.values())):
                return
            self.compare(args, kwargs)
            if self._holds_others(()):
                return
        if self._on_moved is not None:
            self._on_moved()
        # All is well: the tensor is on other memory now, and the graph's is where it was.
        for each in (self._holds, self._holds_others):
            each(None)

    def compare(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Compare arguments more closely than :meth:`check` does at each replay.

        Raises:
            InputAddressError: as for :meth:`check`, and for lazily negated tensors.
        """
        found = _baked(args, kwargs)
        differences = [
            f"{path} is {now.text} now, expected nothing there"
            for path, now in found.items()
            if path not in self._baked
        ]
        for path, expected in self._baked.items():
            now = found.get(path)
            if now is None:
                differences.append(f"{path} is nothing to compare now, expected {expected.text}")
            elif now.is_tensor != expected.is_tensor or (
                now.text != expected.text
                if now.is_tensor
                else not same_value(now.value, expected.value)
            ):
                differences.append(f"{path} is {now.text}, expected {expected.text}")
        if differences:
            raise InputAddressError(
                f"replaying {self._subject}: {len(differences)} of {len(self._baked)} inputs "
                f"differ from the capture: {'; '.join(differences)}; copy the new values into the "
                "buffers used at capture, let the graph key say what else selects a graph, or "
                "release the graph and capture it again"
            )


class _PythonComparison:
    """Compares values, which must not be nested, with those of a capture.

    Args:
        values: values of the capture; tensors are not kept. ``None`` compares none.
        in_turn: tensors and their addresses, one of which is compared each time.
    """

    __slots__ = (
        "_addresses",
        "_dtypes",
        "_guard",
        "_guards_left",
        "_in_turn",
        "_is_compared",
        "_lazy_bits",
        "_next",
        "_num_values",
        "_others_at",
        "_shapes",
        "_strides",
        "_tensors_at",
    )

    def __init__(
        self,
        values: tuple[Any, ...] | None,
        in_turn: Sequence[tuple[weakref.ref[Tensor], int]] = (),
    ) -> None:
        self._in_turn = in_turn
        self._next = 0
        self._is_compared = values is not None
        values = values or ()
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
        # Few tensors have one, and asking takes time.
        has_bits = any(tensor.is_complex() or tensor.is_neg() for tensor in tensors)
        self._lazy_bits = [lazy_bits(tensor) for tensor in tensors] if has_bits else None
        # Made when they were compared for the first time, in the modes of torch that hold there.
        self._guard: Callable[..., bool] | None = None
        self._guards_left = _GUARDS if tensors else 0

    def holds(self, values: tuple[Any, ...] | None) -> bool:
        """Return whether nothing differs; false requires a closer look.

        Args:
            values: values to compare; ``None`` only compares the next tensor in turn.
        """
        if values is None:
            self._next = (self._next + 1) % max(1, len(self._in_turn))
            return True
        return self._holds_next() and (not self._is_compared or self._holds_values(values))

    def _holds_next(self) -> bool:
        if not self._in_turn:
            return True
        tensor, address = self._in_turn[self._next]
        now = tensor()
        if now is not None and now.data_ptr() != address:
            return False
        self._next = (self._next + 1) % len(self._in_turn)
        return True

    def _holds_values(self, values: tuple[Any, ...]) -> bool:
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
                and (
                    self._lazy_bits is None
                    or [lazy_bits(tensor) for tensor in tensors] == self._lazy_bits
                )
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
            type(values[index]) is kind and (not is_compared or same_value(values[index], value))
            for index, kind, is_compared, value in self._others_at
        )


def _never(values: tuple[object, ...] | None) -> bool:
    """Require a closer look at any values."""
    del values
    return False


def _is_nested(value: object) -> bool:
    return isinstance(value, (list, tuple, dict)) or dataclasses.is_dataclass(value)


class _Baked(NamedTuple):
    text: str
    value: object
    is_tensor: bool


def _baked(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, _Baked]:
    """Return the part of each input that a graph fixes, by its path."""
    named = named_arguments(args, kwargs).items()
    return {path: baked for name, value in named for path, baked in _baked_leaves(value, name)}


def _baked_leaves(value: object, path: str) -> Iterator[tuple[str, _Baked]]:
    for leaf_path, leaf in leaves(value, path):
        if isinstance(leaf, Tensor):
            shape, stride = tuple(leaf.shape), leaf.stride()
            text = f"a {lazy_bits(leaf)}tensor of {leaf.dtype}, shape {shape}, stride {stride}"
            yield leaf_path, _Baked(f"{text} at {leaf.data_ptr():#x}", None, is_tensor=True)
        elif is_plain(leaf):
            text = f"{leaf!r} ({type(leaf).__name__})"
            yield leaf_path, _Baked(text, snapshot(leaf), is_tensor=False)
