"""Breakable capture: a graph ends before an eager function, and a new one begins after it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from npu_graph_runtime.capturing.eager_segment import EagerSegment, weakly
from npu_graph_runtime.capturing.marked_call import MarkedCall
from npu_graph_runtime.capturing.unreturned_memory import UnreturnedMemory
from npu_graph_runtime.errors import CaptureSessionError, GraphRuntimeError
from npu_graph_runtime.failures.diagnosis import diagnose, is_of_device
from npu_graph_runtime.torch_internals import abandon_dispatch_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from npu_graph_runtime.capturing.capture_session import CaptureSession
    from npu_graph_runtime.capturing.watching.capture_watch import CaptureWatch
    from npu_graph_runtime.device import DeviceGraph
    from npu_graph_runtime.graph_context import CallContext
    from npu_graph_runtime.torch_internals import TorchDispatchMode

Function = TypeVar("Function", bound="Callable[..., Any]")


def runs_eagerly(
    context: CallContext, *, at_capture: Callable[..., Any] | None = None
) -> Callable[[Function], Function]:
    """Return a decorator for functions that break a breakable capture and run eagerly at replay.

    Use it for code that cannot be captured: attention whose kernel depends on host lengths,
    collectives started by the host, anything that synchronises. In a capture under ``BREAKABLE``
    the current graph ends before the function, and a new one begins after it. Each replay calls the
    function again in between, with the arguments of the capture: the same tensors, which contain
    new values, and the same other objects. Read anything else that changes between steps inside the
    function, for instance from the engine's forward context. In any other run mode, in warm-up
    runs, and inside another such function, the function is simply called.

    Captured work after the function reads its result, so the result must be where it was at
    capture:

    - A tensor on the memory of an argument, such as an output buffer, is left there.
    - A new tensor is kept as long as the graph. At each replay, the new result is copied into it.
    - A tensor that something else also refers to, such as a buffer of the module, must be the same
      one at each replay.

    Captured work must not read memory that the function allocates and keeps elsewhere without
    returning it, because each replay allocates other memory. This is an error at capture.

    Anything else raises :class:`~npu_graph_runtime.errors.EagerSegmentError` at the replay. So does
    another number of results or another plain value, which later Python code may have used.

    Args:
        context: context of the callables that capture, as for
            :class:`~npu_graph_runtime.GraphedCallable`.
        at_capture: called instead of the function during the capture, with its arguments. Use it
            for work that only a real step may do, such as sending a layer's cache away. Must return
            what the function returns: tensors of the same layout, in the same memory or in new
            memory. Warm-up runs call the function; set ``warmup_runs`` to 0 if they must not.
    """
    return _marking(context, lambda session, call: session.call_eagerly(call), at_capture)


def break_graph(context: CallContext) -> None:
    """End the captured segment here and begin another one, with nothing between them.

    Use it if a segment would be too long for the device, or if an observer should time its end.
    Does nothing outside a capture under ``BREAKABLE``. A replay calls one empty function for it.

    Args:
        context: context of the callables that capture, as for
            :class:`~npu_graph_runtime.GraphedCallable`.
    """
    session = context.capture_session
    if session is not None:
        session.call_eagerly(MarkedCall(_nothing_between_segments, (), {}))


def _nothing_between_segments() -> None:
    """Do nothing; errors name it."""


def runs_captured(context: CallContext, name: str) -> Callable[[Function], Function]:
    """Return a decorator that names work inside a captured segment.

    Errors use the name for the segment, and
    :func:`~npu_graph_runtime.diagnosis.find_first_difference` compares the function's result. A
    replay has no extra cost. Use it for example for the work of a layer between two functions that
    run eagerly. A function that contains one of those names the segment that it ends in.

    Args:
        context: context of the callables that capture, as for
            :class:`~npu_graph_runtime.GraphedCallable`.
        name: such as ``layers.3.mlp to layers.4.qkv_proj``.
    """
    return _marking(context, lambda session, call: session.call_named(name, call))


def _marking(
    context: CallContext,
    tell: Callable[[CaptureSession, MarkedCall], Any],
    at_capture: Callable[..., Any] | None = None,
) -> Callable[[Function], Function]:
    """Return a decorator for functions whose calls an open session is told."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            session = context.capture_session
            if session is None:
                return function(*args, **kwargs)
            return tell(session, MarkedCall(function, args, kwargs, at_capture))

        return call  # type: ignore[return-value]

    return decorate


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CapturedPart:
    """Work inside a segment named by :func:`~npu_graph_runtime.runs_captured`.

    Attributes:
        name: as given.
        result: its result, without keeping memory alive; valid after the replay of its segment
            until that of the next one. ``None`` if the work contains a break.
    """

    name: str
    result: Any


@dataclasses.dataclass(kw_only=True, slots=True, eq=False)
class CapturedSegment:
    """A graph between two functions that run eagerly.

    Attributes:
        graph: the captured graph.
        number: number of the segment among the captured ones, from 1.
        behind: the eager call before it; ``None`` for the first segment.
        before: the eager call after it; ``None`` for the last segment, and during its capture.
        parts: the named work inside, in order.
    """

    graph: DeviceGraph
    number: int
    behind: str | None
    before: str | None = None
    parts: list[CapturedPart] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        if self.parts:
            place = ", ".join(part.name for part in self.parts)
        elif self.behind and self.before:
            place = f"between {self.behind} and {self.before}"
        elif self.behind or self.before:
            place = f"behind {self.behind}" if self.behind else f"before {self.before}"
        else:
            return f"segment {self.number}"
        return f"segment {self.number} ({place})"

    def reset(self) -> None:
        """Release the graph."""
        self.graph.reset()
        self.parts.clear()


class SegmentedGraph:
    """Captured segments with eager functions between them, replayed as one graph.

    It is a :class:`~npu_graph_runtime.device.DeviceGraph` like any other. The eager functions run
    on the replaying thread and stream. If one raises, the rest of the step does not run, and the
    graph remains usable. They run without gradients, or in inference mode, if the capture did,
    regardless of the mode at the replay.

    Args:
        segments: graphs, and eager segments between them.
        subject: what was captured, for messages.

    Attributes:
        segments: as given.
    """

    def __init__(self, segments: Sequence[CapturedSegment | EagerSegment], subject: str) -> None:
        self.segments = tuple(segments)
        self._replays = tuple(
            segment.replay if isinstance(segment, EagerSegment) else segment.graph.replay
            for segment in segments
        )
        self._subject = subject
        # Constructed in the modes of the capture.
        self._is_inference = torch.is_inference_mode_enabled()
        self._has_gradients = torch.is_grad_enabled()

    @property
    def num_graphs(self) -> int:
        """Number of captured segments."""
        return len(self.segments) - self.num_breaks

    @property
    def num_breaks(self) -> int:
        """Number of functions that run eagerly at each replay."""
        return sum(isinstance(segment, EagerSegment) for segment in self.segments)

    def replay(self) -> None:
        """Replay all segments in order, on the current stream.

        Raises:
            EagerSegmentError: An eager function returned something else than at capture.
            DeviceError: The device rejected a captured segment; the message names it.
            Exception: Any error of an eager function, unchanged.
        """
        self._run(self._replays)

    def replay_observed(self, tell: Callable[[str, bool, float, float], None]) -> None:
        """Replay, and report the name of each segment and whether it runs eagerly.

        Args:
            tell: called after each segment; its last arguments are the start time and the duration
                in seconds, by ``time.perf_counter``.

        Raises:
            EagerSegmentError: as for :meth:`replay`, like all other errors.
        """

        def timed(segment: CapturedSegment | EagerSegment, replay: Callable[[], None]) -> None:
            began = time.perf_counter()
            replay()
            seconds = time.perf_counter() - began
            if isinstance(segment, EagerSegment):
                tell(segment.name, True, began, seconds)
            else:
                tell(str(segment), False, began, seconds)

        pairs = zip(self.segments, self._replays, strict=True)
        self._run([functools.partial(timed, *pair) for pair in pairs])

    def _run(self, replays: Sequence[Callable[[], None]]) -> None:
        if self._is_inference and not torch.is_inference_mode_enabled():
            # Results lie in tensors of inference mode, which nothing else may write.
            with torch.inference_mode():
                self._run_here(replays)
        elif not self._has_gradients and torch.is_grad_enabled():
            # A buffer that eager functions write would keep the autograd graph of each replay.
            with torch.no_grad():
                self._run_here(replays)
        else:
            self._run_here(replays)

    def _run_here(self, replays: Sequence[Callable[[], None]]) -> None:
        number = -1
        try:
            for number, replay in enumerate(replays):  # noqa: B007 - read where it fails
                replay()
        except GraphRuntimeError:
            raise
        except RuntimeError as error:
            segment = self.segments[number]
            if isinstance(segment, EagerSegment):
                raise
            subject = f"{segment} of {self._subject}"
            raise diagnose(error, doing="replaying", subject=subject) from error

    def reset(self) -> None:
        """Release all segments, and the results of eager functions."""
        # A replay afterwards is refused by the first of them, which is a graph.
        _reset(self.segments)


class SegmentRecorder:
    """Captures one call in segments, on the stream of a session, which is the current one.

    Attributes:
        num_run: number of replayed segments and called functions, including failed ones.
    """

    def __init__(self, session: CaptureSession, subject: str, watch: CaptureWatch | None) -> None:
        self._session = session
        self._device = session.device
        self._watch = watch
        self._subject = subject
        self.num_run = 0
        self._segments: list[CapturedSegment | EagerSegment] = []
        self._open: CapturedSegment | None = None
        self._capture: AbstractContextManager[object] | None = None
        self._latest: CapturedSegment | None = None
        self._failed: tuple[str, BaseException] | None = None
        self._unreturned = UnreturnedMemory(subject)
        self._mode: TorchDispatchMode | None = None
        if watch is not None:
            watch.memory.on_operator = self._unreturned.check_operator

    def record(self, call: Callable[[], Any]) -> tuple[SegmentedGraph, Any]:
        """Capture the call and return its graph and its result.

        Each segment is replayed once as soon as it is captured, so that eager functions see the
        values that they will see later, and the result is written.

        Raises:
            CaptureSessionError: ``call`` caught the exception of an eager function and continued.
            EagerSegmentError: Captured work, or the result, uses memory that an eager function
                allocated and did not return.
            DeviceError: The device rejected the capture; the message names the segment.
            Exception: Any other error of ``call``, unchanged; nothing is captured then.
        """
        try:
            self._begin()
            result = call()
            self._end()
            self._unreturned.check(result, "the result")
        except BaseException as error:
            place = f"{self._place()} of {self._subject}"
            self._abandon(error)
            if not isinstance(error, RuntimeError) or isinstance(error, GraphRuntimeError):
                raise
            if not is_of_device(error) or self._failed is not None:
                raise
            raise diagnose(error, doing="capturing", subject=place) from error
        return SegmentedGraph(self._segments, self._subject), result

    def call_eagerly(self, call: MarkedCall) -> Any:
        """End the segment, call the function, and begin the next segment."""
        if self._open is None:
            # Inside another eager function, or behind one that failed.
            return call.run()
        name = call.name
        if torch.compiler.is_compiling():
            # Dynamo would trace how a capture ends, and end it.
            raise CaptureSessionError(
                f"capturing {self._subject}: torch.compile traces {name}, which runs eagerly, "
                "expected that Python calls it, since the graph breaks there; do not compile what "
                "contains it"
            )
        try:
            self._end(before=name)
            segment, result = self._called(name, call)
            self._segments.append(segment)
            self._begin()
        except BaseException:
            # Where an operator written in Python has called this, torch takes the mode off its
            # stack behind it, once more than it was put there.
            if self._mode is None:
                self._enter_mode()
            raise
        return result

    def _called(self, name: str, call: MarkedCall) -> tuple[EagerSegment, Any]:
        try:
            self._unreturned.check(call.arguments, f"the call of {name}")
            self.num_run += 1
            if self._watch is not None:
                self._watch.begin_eager()
            with self._unreturned.made_by(name):
                segment, result = EagerSegment.of_call(
                    call, device=self._device, subject=self._subject
                )
            self._unreturned.returned(result)
            if self._watch is not None:
                self._watch.end_eager(name, call.arguments, result)
        except BaseException as error:
            self._failed = (name, error)
            raise
        return segment, result

    def call_named(self, name: str, call: MarkedCall) -> Any:
        """Call a function and name the segment after it, also in its own errors."""
        begun = self._open
        if begun is not None:
            begun.parts.append(CapturedPart(name=name, result=None))
        result = call.run()
        if self._open is not None:
            part = CapturedPart(name=name, result=weakly(result, self._device))
            parts = self._open.parts
            if self._open is begun:
                parts[[each.name for each in parts].index(name)] = part
            else:
                parts.append(part)
        return result

    def _begin(self) -> None:
        graph = self._device.create_graph()
        session = self._session
        self._capture = self._device.capture(graph, pool=session.pool, stream=session.stream)
        self._capture.__enter__()
        self._enter_mode()
        segment = CapturedSegment(graph=graph, number=self._number(), behind=self._behind())
        self._open = self._latest = segment

    def _enter_mode(self) -> None:
        """Let a torch mode see captured operators, but none of eager functions."""
        if self._watch is not None:
            self._mode = self._watch.memory
        elif self._unreturned.is_there:
            self._mode = self._unreturned
        if self._mode is not None:
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _leave_mode(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _number(self) -> int:
        return 1 + sum(isinstance(segment, CapturedSegment) for segment in self._segments)

    def _behind(self) -> str | None:
        eager = [segment for segment in self._segments if isinstance(segment, EagerSegment)]
        return eager[-1].name if eager else None

    def _place(self) -> str:
        """Return the name of the segment that is being captured, or comes next, for messages."""
        if self._latest is not None and self._latest not in self._segments:
            return str(self._latest)
        behind = self._behind()
        return f"segment {self._number()}" + (f" (behind {behind})" if behind else "")

    def _end(self, before: str | None = None) -> None:
        if self._open is None:
            name, error = self._failed or ("a function", None)
            raise CaptureSessionError(
                f"capturing {self._subject}: {name}, which runs eagerly, raised {error!r}, and the "
                "callable went on, expected that the exception ends the capture, since no capture "
                "is under way behind it; let it through, or catch it inside the function"
            ) from error
        segment, self._open = self._open, None
        segment.before = before
        self._leave_mode()
        if self._capture is not None:
            self._capture.__exit__(None, None, None)
        self._segments.append(segment)
        self.num_run += 1
        try:
            segment.graph.replay()
        except RuntimeError as error:
            if isinstance(error, GraphRuntimeError) or not is_of_device(error):
                raise
            subject = f"{segment} of {self._subject}"
            raise diagnose(error, doing="replaying", subject=subject) from error
        if self._session.after_segment is not None:
            self._session.after_segment()

    def _abandon(self, error: BaseException) -> None:
        """End the current capture, if any, and release everything captured."""
        for mode in (self._unreturned, *([] if self._watch is None else [self._watch.memory])):
            abandon_dispatch_mode(mode)
        self._mode = self._open = None
        if self._capture is not None:
            # The device ends the capture, where an interrupt came just as it was left too; the
            # first error says why.
            with contextlib.suppress(BaseException):
                self._capture.__exit__(type(error), error, error.__traceback__)
        _reset(self._segments)


def _reset(segments: Sequence[CapturedSegment | EagerSegment]) -> None:
    for segment in segments:
        segment.reset()
