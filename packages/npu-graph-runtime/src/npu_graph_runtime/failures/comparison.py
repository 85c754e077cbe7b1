"""Compares a call with the graphs that would replay it, segment by segment."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from npu_graph_runtime.capturing.breakable_capture import CapturedSegment, SegmentedGraph
from npu_graph_runtime.capturing.capture_session import CaptureSession
from npu_graph_runtime.capturing.eager_segment import EagerSegment
from npu_graph_runtime.capturing.tensor_leaves import leaves, named_arguments, tensor_leaves
from npu_graph_runtime.errors import DeadlockError, DeviceTimeoutError, GraphRuntimeError
from npu_graph_runtime.failures.bounded_wait import wait_for_device
from npu_graph_runtime.failures.diagnosis import diagnose, is_of_device
from npu_graph_runtime.failures.difference import (
    DifferenceKind,
    FirstDifference,
    Side,
    compare_values,
)
from npu_graph_runtime.failures.preserved_memory import PreservedMemory
from npu_graph_runtime.failures.unwritten_memory import MarkedAllocations
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from npu_graph_runtime.capturing.graphed_callable import ComparedCall, GraphedCallable
    from npu_graph_runtime.capturing.marked_call import MarkedCall


def find_first_difference(
    call: Callable[[], object],
    graphed: Sequence[GraphedCallable],
    *,
    written: Mapping[str, Tensor] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    num_tokens: int | None = None,
    seconds: float = 2.0,
) -> FirstDifference | None:
    """Run one step eagerly and with its graphs, piece by piece, and return the first difference.

    Each piece, and each segment of a breakable capture, runs eagerly, is replayed on the same
    inputs, and is synchronised. Then its results and writes are compared. The first piece or
    segment that fails, hangs, produces NaN or differs is reported, with its layer's name, and the
    step ends there. Use it for diagnosis: each piece costs two synchronisations and copies to the
    host.

    The results of pieces are compared. For a segment, the arguments of the eager function after it
    are compared, and the results of work that :func:`~npu_graph_runtime.runs_captured` names in it;
    and the results of the eager function, and ``written``. Values outside these are not compared,
    so name them if a difference is reported one segment late. A graph of run mode ``FULL`` is one
    piece and is compared after ``call`` has returned, so ``call`` may update it after its replay.

    Do not use it for functions that draw random numbers.

    Args:
        call: launches one step in the usual way, such as ``lambda: runner.run(batch)``. It sets run
            mode and key, and calls the graphed callables. After a difference, an exception ends it.
        graphed: the callables whose graphs are compared, on one device and with one context: the
            pieces of one model, or a single callable.
        written: tensors that the step changes and that are not arguments of the graphed callables,
            by name, such as KV caches. They are restored between eager run and replay, and
            compared, as are arguments other than parameters. Each is copied a few times per
            segment. Tensors that a step writes again with the same values can be left out.
        rtol: tolerated difference of floats, relative to the eager value. After a segment that is
            close enough, the next one starts from the eager values.
        atol: tolerated absolute difference of floats. If both are 0, values must be equal.
        num_tokens: real tokens of the step. In tensors with as many rows as the key has tokens,
            only these rows are compared, because padding need not be written.
        seconds: time limit for one piece.

    Returns:
        ``None`` if nothing differs.

    Raises:
        GraphNotCapturedError: A key of the call is not captured.
        InputAddressError: An input is not at the address that the graph reads.
        ValueError: No callable is given, or none of them was called.
        Exception: Any error of ``call``, unchanged.
    """
    if not graphed:
        raise ValueError("comparing a call with its graphs: no graphed callable is given")
    comparison = Comparison(
        graphed, written or {}, (rtol, atol), num_tokens, seconds, goes_on=False
    )
    comparison.follow(call)
    return comparison.difference


class _FoundError(BaseException):
    """Ends the call with the first difference; ``except Exception`` does not catch it."""

    def __init__(self, difference: FirstDifference) -> None:
        super().__init__(str(difference))
        self.difference = difference


class Comparison:
    """The comparison of one call with its graphs.

    Arguments are those of `find_first_difference`; the tolerance is relative and absolute. If
    the call goes on, none of the callables has to be called, and memory that the eager run
    reads and then changes is restored before the replay.

    Attributes:
        goes_on: whether the call continues after a difference, with the results of its graphs.
        difference: the first difference found.
        preserved: records changes of eager runs, if the call must leave memory as without them.
    """

    def __init__(
        self,
        graphed: Sequence[GraphedCallable],
        written: Mapping[str, Tensor],
        tolerance: tuple[float, float],
        num_tokens: int | None,
        seconds: float,
        *,
        goes_on: bool,
    ) -> None:
        self.goes_on = goes_on
        self.difference: FirstDifference | None = None
        self.preserved = PreservedMemory() if goes_on else None
        if self.preserved is not None:
            self.preserved.is_looking = False
        self._graphed = graphed
        self._given = written
        self._state: Mapping[str, Tensor] = written
        self._rtol, self._atol = tolerance
        self._num_tokens = num_tokens
        self._seconds = seconds
        self._num_calls = 0
        self._padded = 0
        self._walk: _Walk | None = None
        self._unfinished: Callable[[], None] | None = None

    def follow(self, call: Callable[[], object]) -> list[Any]:
        """Run a call and compare it; return its result in a list, if it completed.

        Raises:
            Exception: Any error of ``call``, unchanged.
        """
        first = self._graphed[0]
        stream = first.device.current_stream()
        session = CaptureSession(first.device, first.context, object(), stream)
        results: list[object] = []
        try:
            with contextlib.ExitStack() as stack:
                for each in self._graphed:
                    compared = each.compared(self.compare, runs_missing=self.goes_on)
                    stack.enter_context(compared)
                stack.enter_context(session.told_to(self))
                stack.enter_context(MarkedAllocations())
                if self.preserved is not None:
                    stack.enter_context(self.preserved)
                results.append(call())
            self.finish()
        except _FoundError as found:
            self.difference = self.difference or found.difference
        return results

    # What the graphed callables hand over.

    def compare(self, call: ComparedCall) -> Any:
        """Run one call eagerly and by its graph, and return the outputs of the graph."""
        self._num_calls += 1
        self._padded = call.captured.key.num_tokens
        arguments = {
            path: tensor
            for name, value in named_arguments(call.args, call.kwargs).items()
            for path, tensor in tensor_leaves(value, name)
            if not isinstance(tensor, nn.Parameter)
        }
        self._state = {**self._given, **arguments}
        if isinstance(call.captured.graph, SegmentedGraph):
            return self._compare_segments(call, call.captured.graph)
        place = call.subject
        before = _Kept(self._state)
        result = self._eagerly(call.graphed.unwrap(), call.args, call.kwargs)
        self._wait(place, Side.EAGER)
        written = self._written()
        before.restore()
        self._replay(call.captured.graph.replay, place)

        def finish() -> None:
            self._wait(place, Side.CAPTURED)
            self._compare(place, "", call.captured.outputs, result, "result")
            self._compare_written(place, written)

        if call.graphed.run_mode is RunMode.FULL:
            # The caller updates the graph behind its replay: it need not end before that.
            self._unfinished = finish
        else:
            finish()
        return call.captured.outputs

    def finish(self) -> None:
        """Compare what remains after the call has returned.

        Raises:
            ValueError: No graphed callable was called.
        """
        if self._unfinished is not None:
            self._unfinished()
        if not self._num_calls and not self.goes_on:
            raise ValueError(
                "comparing a call with its graphs: none of the graphed callables was called in its "
                "run mode, expected one; let the call set run mode and key"
            )

    # What the capture session tells.

    def call_eagerly(self, call: MarkedCall) -> Any:
        """Compare the segment before an eager function, then the function."""
        walk = self._walk
        if walk is None:
            return call.run()
        with self._looking(False):
            return self._compare_eager(walk, call)

    def _compare_eager(self, walk: _Walk, call: MarkedCall) -> Any:
        segment, eager = walk.next_captured(), walk.next_eager()
        name = call.name
        if segment is None or eager is None or eager.name != name:
            raise walk.broke_elsewhere(segment, eager, name)
        place = f"{segment} of {walk.subject}"
        given, named = call.arguments, eager.arguments
        self._settle(place, segment, {f"argument of {name}": (named, given)})
        place = f"{eager.name} behind {segment} of {walk.subject}"
        before = _Kept(self._state)
        result = self._eagerly(call.function, call.args, call.kwargs)
        self._wait(place, Side.EAGER)
        written = self._written()
        before.restore()
        self._replay(eager.replay, place)
        self._wait(place, Side.CAPTURED)
        for path, value in leaves(result, "result"):
            self._compare(place, "", eager.results.get(path, value), value, path)
        self._compare(place, "argument", named, given, "", carries_on=True)
        self._compare_written(place, written)
        walk.begin(_Kept(self._state))
        return result

    def call_named(self, name: str, call: MarkedCall) -> Any:
        """Keep the result of named work until its segment is compared."""
        walk = self._walk
        if walk is None:
            return call.run()
        parts, index = walk.parts, len(walk.parts)
        parts.append((name, None))
        result = call.run()
        if walk.parts is parts:
            parts[index] = (name, result)
        else:
            walk.parts.append((name, result))
        return result

    def _compare_segments(self, call: ComparedCall, graph: SegmentedGraph) -> Any:
        walk = self._walk = _Walk(graph, call.subject)
        walk.begin(_Kept(self._state))
        try:
            with self._looking(True):
                result = call.graphed.unwrap()(*call.args, **call.kwargs)
            segment = walk.next_captured()
            missing = walk.next_eager()
            if segment is None or missing is not None:
                raise walk.broke_elsewhere(segment, missing, "nothing")
            place = f"{segment} of {walk.subject}"
            self._settle(place, segment, {"result": (call.captured.outputs, result)})
        finally:
            self._walk = None
        return call.captured.outputs

    def _settle(
        self, place: str, segment: CapturedSegment, seen: Mapping[str, tuple[Any, Any]]
    ) -> None:
        """Replay a segment whose eager run is launched, and compare its results."""
        walk = self._walk
        assert walk is not None  # noqa: S101
        self._wait(place, Side.EAGER)
        written = self._written()
        walk.before.restore()
        self._replay(segment.graph.replay, place)
        self._wait(place, Side.CAPTURED)
        for part, (name, result) in zip(segment.parts, walk.parts, strict=False):
            self._compare(place, f"{name}: ", part.result, result, "result", carries_on=True)
        for name, (captured, found) in seen.items():
            self._compare(place, "", captured, found, name, carries_on=True)
        self._compare_written(place, written)

    # The two runs, and what comes of them.

    def _eagerly(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        walk, self._walk = self._walk, None
        try:
            with self._looking(True):
                return function(*args, **kwargs)
        finally:
            self._walk = walk

    def _looking(self, is_looking: bool) -> AbstractContextManager[None]:
        """Turn the recording of changes in the block on or off."""
        preserved = self.preserved
        return contextlib.nullcontext() if preserved is None else preserved.looking(is_looking)

    def _written(self) -> list[tuple[str, Tensor, Tensor]]:
        """Return names, tensors and values of what the eager run wrote, and undo other changes."""
        kept = _Kept(self._state)
        written = [(name, tensor, kept.values[name]) for name, tensor in kept.tensors.items()]
        if self.preserved is not None:
            changed = self.preserved.bring_back()
            written += [(name, *pair) for name, pair in changed.items()]
        return written

    def _replay(self, replay: Callable[[], object], place: str) -> None:
        # Eager functions inside one that is replayed are part of it.
        walk, self._walk = self._walk, None
        try:
            replay()
        except RuntimeError as error:
            if not isinstance(error, GraphRuntimeError) and not is_of_device(error):
                raise
            self._raise_failure(error, place, Side.CAPTURED)
        finally:
            self._walk = walk

    def _wait(self, place: str, side: Side) -> None:
        error = wait_for_device(self._graphed[0].device, seconds=self._seconds, subject=place)
        if error is not None:
            self._raise_failure(error, place, side)

    def _raise_failure(self, error: RuntimeError, place: str, side: Side) -> None:
        if not isinstance(error, GraphRuntimeError):
            cause = error
            error = diagnose(error, doing="replaying", subject=place)
            error.__cause__ = cause
        hung = isinstance(error, (DeadlockError, DeviceTimeoutError))
        kind = DifferenceKind.HUNG if hung else DifferenceKind.FAILED
        raise _FoundError(FirstDifference(kind=kind, place=place, side=side, error=error))

    def _compare(
        self,
        place: str,
        prefix: str,
        captured: Any,
        eager: Any,
        name: str,
        *,
        carries_on: bool = False,
    ) -> None:
        """Compare nested values; continue the graph from the eager ones if that matters."""
        ours, theirs = dict(leaves(captured, name)), dict(leaves(eager, name))
        if ours.keys() != theirs.keys():
            self._note(
                FirstDifference(
                    kind=DifferenceKind.DIFFERED,
                    place=place,
                    value=f"{prefix}{name}",
                    captured=f"of {', '.join(ours)}",
                    eager=f"of {', '.join(theirs)}",
                )
            )
            return
        for path, value in ours.items():
            found = compare_values(
                self._real(value), self._real(theirs[path]), rtol=self._rtol, atol=self._atol
            )
            if found is not None:
                difference: Any = found
                self._note(FirstDifference(place=place, value=f"{prefix}{path}", **difference))
            eager_value = theirs[path]
            is_tolerant = carries_on and (self._rtol or self._atol)
            if is_tolerant and isinstance(value, Tensor) and isinstance(eager_value, Tensor):
                value.copy_(eager_value)

    def _note(self, difference: FirstDifference) -> None:
        if not self.goes_on:
            raise _FoundError(difference)
        self.difference = self.difference or difference

    def _compare_written(self, place: str, written: list[tuple[str, Tensor, Tensor]]) -> None:
        for name, tensor, eager in written:
            self._compare(place, "", tensor, eager, name, carries_on=True)

    def _real(self, value: object) -> object:
        is_padded = isinstance(value, Tensor) and value.dim() and value.shape[0] == self._padded
        if self._num_tokens is not None and is_padded:
            assert isinstance(value, Tensor)  # noqa: S101
            return value[: self._num_tokens]
        return value


class _Walk:
    """Position in the comparison of one graph's segments."""

    def __init__(self, graph: SegmentedGraph, subject: str) -> None:
        self.subject = subject
        self.parts: list[tuple[str, Any]] = []
        self.before = _Kept({})
        self._segments: Iterator[CapturedSegment | EagerSegment] = iter(graph.segments)

    def begin(self, before: _Kept) -> None:
        """Copy the values from which the eager run of the next segment begins."""
        self.before = before
        self.parts = []

    def next_captured(self) -> CapturedSegment | None:
        """Return the next captured segment, if there is one."""
        segment = next(self._segments, None)
        return segment if isinstance(segment, CapturedSegment) else None

    def next_eager(self) -> EagerSegment | None:
        """Return the eager segment after it, if there is one."""
        segment = next(self._segments, None)
        return segment if isinstance(segment, EagerSegment) else None

    def broke_elsewhere(
        self, segment: CapturedSegment | None, eager: EagerSegment | None, name: str
    ) -> _FoundError:
        """Return the error for an eager function behind a segment that is not that of the graph."""
        return _FoundError(
            FirstDifference(
                kind=DifferenceKind.DIFFERED,
                place=f"{segment or 'the end'} of {self.subject}",
                value="what runs eagerly behind it",
                captured="the end" if eager is None else eager.name,
                eager=name,
            )
        )


class _Kept:
    """Tensors with copies of their values."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.values = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def restore(self) -> None:
        """Write the copies back."""
        for name, tensor in self.tensors.items():
            tensor.detach().copy_(self.values[name])
