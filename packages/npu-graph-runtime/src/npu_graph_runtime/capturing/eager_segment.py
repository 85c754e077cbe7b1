"""A call that runs eagerly between two captured segments, at each replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from npu_graph_runtime.capturing.fresh_memory import memory_held_alone, memory_of
from npu_graph_runtime.capturing.marked_call import MarkedCall
from npu_graph_runtime.capturing.plain_values import is_plain, same_value, snapshot
from npu_graph_runtime.capturing.tensor_leaves import leaves, map_tensors, tensor_leaves
from npu_graph_runtime.capturing.weak_tensor import lazy_bits, weak_tensor
from npu_graph_runtime.errors import EagerSegmentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime.device import GraphDevice


class EagerSegment:
    """One call of a function, repeated with the same arguments.

    Args:
        call: the call of the capture. Device tensors of its arguments are referenced without
            keeping their memory alive, as in the captured segments.
        result: result of the call at capture; its tensors are kept alive.
        fresh: addresses of memory in ``result`` that nothing else refers to.
        subject: what is captured, for messages.

    Attributes:
        name: name of the function and its string arguments, for messages.
    """

    def __init__(
        self, call: MarkedCall, *, result: Any, fresh: frozenset[int], subject: str
    ) -> None:
        self.name = call.name
        self._function = call.function
        self._args = call.args
        self._kwargs = call.kwargs
        self._fresh = fresh
        self._subject = subject
        self._expected = [
            (path, leaf.detach() if isinstance(leaf, Tensor) else snapshot(leaf))
            for path, leaf in leaves(result, "result")
        ]
        self._shared = _shared_memory([leaf for _, leaf in self._expected])
        # Either of which there is but one.
        is_nothing = result is None or (type(result) is tuple and not result)
        self._nothing = result if is_nothing else self
        self._only = _layout(result) if isinstance(result, Tensor) else None

    @classmethod
    def of_call(
        cls, call: MarkedCall, *, device: GraphDevice, subject: str
    ) -> tuple[EagerSegment, Any]:
        """Call a function or its stand-in at capture; return the segment and the result."""
        results = [(call.at_capture or call.function)(*call.args, **call.kwargs)]
        alone = memory_held_alone(results)
        result = results[0]
        given = {memory_of(tensor) for _, tensor in tensor_leaves(call.arguments, "")}
        kept = MarkedCall(
            call.function,
            tuple(weakly(value, device) for value in call.args),
            {name: weakly(value, device) for name, value in call.kwargs.items()},
        )
        return cls(kept, result=result, fresh=alone - given, subject=subject), result

    def replay(self) -> None:
        """Call the function again, and copy its result to where captured work reads it.

        Raises:
            EagerSegmentError: The result has another structure, another plain value, or a tensor of
                another layout or in memory that does not belong to the graph.
        """
        result = self._function(*self._args, **self._kwargs)
        # Most functions write into a buffer that they are given, and return that or nothing.
        if isinstance(result, Tensor):
            if self._only is not None and _layout(result) == self._only:
                return
        elif result is self._nothing:
            return
        self._bring_all(result)

    def _bring_all(self, result: Any) -> None:
        found = list(leaves(result, "result"))
        if [path for path, _ in found] != [path for path, _ in self._expected]:
            raise self._error(
                f"it returned {', '.join(path for path, _ in found)}, expected "
                f"{', '.join(path for path, _ in self._expected)} as at capture"
            )
        if self._shared and _shared_memory([leaf for _, leaf in found]) != self._shared:
            raise self._error(
                "its results share memory otherwise than at capture, expected the same views of "
                "one tensor, since one would be written over the other; return tensors of their own"
            )
        for (path, expected), (_, now) in zip(self._expected, found, strict=True):
            if isinstance(expected, Tensor):
                self._bring(path, expected, now)
            elif is_plain(expected) and not same_value(now, expected):
                raise self._error(
                    f"{path} is {now!r}, expected {expected!r} as at capture, which code behind it "
                    "may have used; let the graph key say it"
                )

    @property
    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Positional and keyword arguments of the capture."""
        return self._args, self._kwargs

    @property
    def results(self) -> dict[str, object]:
        """The parts of the result that captured work reads, by their path in it."""
        return dict(self._expected)

    def reset(self) -> None:
        """Drop arguments and results."""
        self._args, self._kwargs, self._expected = (), {}, []

    def _bring(self, path: str, expected: Tensor, now: object) -> None:
        if not isinstance(now, Tensor) or not _alike(now, expected):
            raise self._error(f"{path} is {_described(now)}, expected {_described(expected)}")
        if _layout(now) == _layout(expected):
            return
        if memory_of(expected) not in self._fresh:
            raise self._error(
                f"{path} is {_described(now)}, expected {_described(expected)}, which was memory "
                "of an argument or held elsewhere at capture; write into that, or return a new "
                "tensor each time"
            )
        # Captured work reads it as data; no gradient passes a replay.
        expected.copy_(now.detach())

    def _error(self, problem: str) -> EagerSegmentError:
        return EagerSegmentError(
            f"replaying {self._subject}: {self.name}, which runs eagerly: {problem}"
        )


def weakly(value: Any, device: GraphDevice) -> Any:
    """Return a value without keeping its memory alive; unchanged if it cannot be rebuilt."""
    try:
        return map_tensors(value, lambda tensor: weak_tensor(tensor, device))
    except TypeError:
        return value


def _shared_memory(values: list[object]) -> list[tuple[object, ...]]:
    """Return for each tensor that shares memory with an earlier one: which one, and its layout."""
    first: dict[int, int] = {}
    shared: list[tuple[object, ...]] = []
    for index, value in enumerate(values):
        if isinstance(value, Tensor) and value.numel():
            owner = first.setdefault(memory_of(value), index)
            shared.append((owner, value.storage_offset(), value.stride()))
    return shared if len(first) < len(shared) else []


def _layout(tensor: Tensor) -> tuple[object, ...]:
    bits = (tensor.is_conj(), tensor.is_neg())
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, bits


def _alike(now: Tensor, expected: Tensor) -> bool:
    return (
        now.shape == expected.shape
        and now.dtype == expected.dtype
        and now.device == expected.device
    )


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"{value!r}"
    return (
        f"a {lazy_bits(value)}tensor of {value.dtype}, shape {tuple(value.shape)}, stride "
        f"{value.stride()} on {value.device} at {value.data_ptr():#x}"
    )
