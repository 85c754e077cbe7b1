"""A callable that is captured once per graph key and replayed afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from npu_graph_runtime.capturing.breakable_capture import SegmentedGraph
from npu_graph_runtime.capturing.guarding.capture_guard import CaptureGuard, GuardedRun
from npu_graph_runtime.capturing.input_layout import AddressCheck, InputLayout
from npu_graph_runtime.capturing.tensor_leaves import map_tensors
from npu_graph_runtime.capturing.watching.capture_watch import (
    BakedMemory,
    CallableWatch,
    KeptMemory,
)
from npu_graph_runtime.capturing.watching.watched_weights import weights_of
from npu_graph_runtime.capturing.weak_tensor import weak_tensor
from npu_graph_runtime.device import GuardingDevice
from npu_graph_runtime.errors import (
    CaptureSessionError,
    GraphKeyError,
    GraphNotCapturedError,
    GraphRuntimeError,
    IllegalWhileCapturingError,
    UnknownDeviceError,
    WeakOutputError,
)
from npu_graph_runtime.failures.diagnosis import diagnose
from npu_graph_runtime.observer import (
    GraphCaptured,
    GraphMissed,
    GraphReleased,
    GraphReplayed,
    SegmentReplayed,
)
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from npu_graph_runtime.capturing.capture_session import CaptureSession
    from npu_graph_runtime.capturing.native.native_comparison import Holds
    from npu_graph_runtime.capturing.watching.watched_weights import NamedTensors
    from npu_graph_runtime.device import DeviceGraph, GraphDevice
    from npu_graph_runtime.graph_context import CallContext
    from npu_graph_runtime.graph_key import GraphKey
    from npu_graph_runtime.observer import RuntimeObserver


Hook: TypeAlias = "Callable[[GraphKey], AbstractContextManager[object]]"
"""Called with the key of a graph; what it returns is entered around the device's work."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphCounters:
    """Counts the events of a graphed callable since it was created.

    Attributes:
        captured: graphs captured, including those captured again.
        replayed: replays.
        missed: calls in the run mode that found no graph and no open session.
        released: graphs released.
    """

    captured: int
    replayed: int
    missed: int
    released: int


class ComparedCall(NamedTuple):
    """A call that would replay a graph, passed on by :meth:`GraphedCallable.compared`.

    Attributes:
        graphed: the callable.
        captured: its graph that it would replay, with the outputs that it would return.
        subject: the callable and the key, for messages.
        args: positional arguments, at the addresses that the graph reads.
        kwargs: keyword arguments, at the addresses that the graph reads.
    """

    graphed: GraphedCallable
    captured: _CapturedGraph
    subject: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class GraphedCallable:
    """Wraps a callable: captured by graph key inside a capture session, replayed elsewhere.

    At each call the context decides what to do. In another run mode than the wrapper's own, the
    wrapper calls the function, so a ``FULL`` wrapper may contain ``PIECEWISE`` ones. In its own run
    mode, it replays the graph of the context's key. If there is none and a capture session is open,
    it runs the function ``warmup_runs`` times, captures it and returns its outputs. A ``BREAKABLE``
    wrapper is captured in segments, between the functions that
    :func:`~npu_graph_runtime.runs_eagerly` marks.

    Arguments are not copied: keep them in buffers with fixed addresses and layouts, and write new
    values into the buffers before the call. Arguments that are not tensors are fixed at capture, so
    plain values (numbers, strings, None, enum members) must not change either; put values that
    change into the graph key.

    Outputs of a replay are in the memory pool of the graph. The next replay of any graph in that
    pool overwrites them, and releasing the graph frees them, so use or copy them at once. The
    outputs of a capturing call have no values until the graph is replayed, except under
    ``BREAKABLE``.

    Use it from one host thread at a time, like its context.

    The hooks ``around_capture`` and ``around_replay`` are for actions that must surround the
    device's work without being part of it, such as loading weights, or setting up an engine's
    memory allocator. They are called with the key and return a context manager. Their errors reach
    the caller.

    Args:
        function: function to capture; launches its work on the current stream, without
            synchronising.
        device: device that captures and replays.
        context: owned by the caller and shared by the wrappers of one model.
        run_mode: the run mode in which this wrapper acts; not ``EAGER``.
        name: name for messages and events.
        address_check: when inputs are compared with those of the capture.
        weights: returns the tensors that the function reads besides its arguments, by name; by
            default the parameters and buffers of a function that is an ``nn.Module``. They are
            compared with the capture at the first replay, at the next replay after memory of a
            weight was freed, and in :meth:`check_weights`; never with ``AddressCheck.NEVER``. If
            something keeps the old memory of a replaced weight alive, only `check_weights` finds
            it. Other memory that existed before the capture is also watched, through the operators
            that use it; see the table in the README.
        kept_memory: what to do if memory allocated by a capture is still in use afterwards and is
            not an output, such as a workspace that the function caches.
        weak_outputs: keep outputs without keeping their memory alive, so that later captures of the
            pool reuse it (as in vLLM). Objects of classes with unknown fields are kept alive, with
            their memory. Set it to false for outputs that must survive replays of other
            graphs of the pool.
        warmup_runs: eager runs before a capture, which let kernels compile and allocate their
            workspaces; 0 if the caller warms up the whole model itself.
        guard: look for work that cannot be captured, in an additional eager run after the warm-up
            runs:
            reads and copies to the host, shapes that depend on values, synchronisations, seeds,
            copies from the host, and memory that is kept. Each is named with its operator, module,
            file and line. Work that only warm-up runs do, because they cache its result, is not
            reported. Each capture takes one eager run longer, in which each operator takes some 100
            us more; a replay costs nothing.
        lazy_session: allows a call to capture while serving, if its key is not captured and no
            session is open. Returns the session for this one capture, such as
            ``CaptureSession(device, context, pool, stream)``, or ``None`` to reject the call. The
            call also replays the new graph, so its outputs have values; a graph that waits for
            attention updates is rejected. The call waits for the device and collects garbage, so it
            takes long. Ranks that exchange data must capture at the same step.
        around_capture: entered before the warm-up runs of a capture, left after it.
        around_replay: entered after the inputs were compared, before the graph is launched; left
            after the call, when the device may still be working.
        observer: receives captures, replays, misses and releases.

    Attributes:
        name: as given.
        run_mode: as given.

    Raises:
        ValueError: ``run_mode`` is ``EAGER`` or ``warmup_runs`` is negative.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        device: GraphDevice,
        context: CallContext,
        run_mode: RunMode,
        name: str,
        address_check: AddressCheck = AddressCheck.ALWAYS,
        weights: NamedTensors | None = None,
        kept_memory: KeptMemory = KeptMemory.RAISE,
        weak_outputs: bool = True,
        warmup_runs: int = 1,
        guard: CaptureGuard = CaptureGuard.OFF,
        lazy_session: Callable[[], CaptureSession | None] | None = None,
        around_capture: Hook | None = None,
        around_replay: Hook | None = None,
        observer: RuntimeObserver | None = None,
    ) -> None:
        if run_mode is RunMode.EAGER:
            raise ValueError(
                f"wrapping {name!r} for capture: run_mode is EAGER, expected PIECEWISE, BREAKABLE "
                "or FULL, since nothing is captured in EAGER; call the function itself"
            )
        if warmup_runs < 0:
            raise ValueError(
                f"wrapping {name!r} for capture: warmup_runs is {warmup_runs}, expected 0 or more"
            )
        self.name = name
        self.run_mode = run_mode
        self._function = function
        self._device = device
        self._context = context
        self._check_always = address_check is AddressCheck.ALWAYS
        self._check_first = address_check is not AddressCheck.NEVER
        self._weak_outputs = weak_outputs
        self._warmup_runs = warmup_runs
        self._guard = guard
        self._lazy_session = lazy_session
        self._around_capture = around_capture
        self._around_replay = around_replay
        self._observer = observer
        self._is_plain = around_replay is None and observer is None
        self._graphs: dict[GraphKey | None, _CapturedGraph] = {}
        self._latest: _CapturedGraph | None = None  # replayed last, one of these
        # Weak references to memory that graphs use and that is gone, until graphs are compared.
        self._freed: list[object] = []
        self._watch = CallableWatch(
            function,
            weights=weights or weights_of(function),
            kept_memory=kept_memory,
            is_compared=self._check_first,
            freed=self._freed,
        )
        self._compare: Callable[[GraphKey, tuple[Any, ...], Mapping[str, Any]], Any] | None = None
        self._num_captured = 0
        self._num_replayed = 0
        self._num_missed = 0
        self._num_released = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, replay, or capture, as the context says.

        Raises:
            GraphKeyError: The context's run mode was set without a key.
            GraphNotCapturedError: Nothing is captured under the key, no capture session is open,
                and ``lazy_session`` opens none.
            InputAddressError: An input differs from that of the capture; nothing was launched.
            ReplacedWeightError: A weight is at another address than at capture; nothing was
                launched.
            KeptMemoryError: Memory that the capture allocated is kept outside it.
            UncapturableError: ``guard`` is ``RAISE`` and found something.
            CaptureSessionError: A capture is already running, or the open session has another
                device.
            DeviceError: The device rejected the capture or the replay.
        """
        context = self._context
        if context.mode is not self.run_mode:
            return self._function(*args, **kwargs)
        captured = self._latest
        # Hashing the key takes as long as the rest of this.
        if captured is None or captured.key is not context.key:
            captured = self._graphs.get(context.key)
            if captured is None:
                return self._call_uncaptured(args, kwargs)
            self._latest = captured
        if self._freed:
            self._uncheck()
        if not captured.is_checked:
            captured.inputs.compare(args, kwargs)
            captured.memory.check()
            captured.is_checked = True
        elif (holds := captured.holds) is not None and (
            not holds(args) or (kwargs and self._check_always)
        ):
            captured.inputs.check(args, kwargs)
        if not self._is_plain:
            self._replay_told(captured)
            return captured.outputs
        try:
            captured.replay()
        except RuntimeError as error:
            self._raise_replay_error(captured, error)
        self._num_replayed += 1
        return captured.outputs

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `copy`, `deepcopy` and `pickle`: a copy would share graphs, or have none.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"copying or pickling the captured function {self.name!r}: its graphs belong to this "
            "object; make a GraphedCallable of the copied function"
        )

    def __repr__(self) -> str:
        return f"GraphedCallable({self.name!r}, {self.run_mode.name}, {len(self._graphs)} graphs)"

    @property
    def captured_keys(self) -> tuple[GraphKey, ...]:
        """Keys of the captured graphs, in the order of their capture."""
        return tuple(graph.key for graph in self._graphs.values())

    @property
    def num_graphs(self) -> int:
        """Current number of device graphs: one per key, or one per segment of a key."""
        return sum(
            graph.graph.num_graphs if isinstance(graph.graph, SegmentedGraph) else 1
            for graph in self._graphs.values()
        )

    @property
    def counters(self) -> GraphCounters:
        """The current counters."""
        return GraphCounters(
            captured=self._num_captured,
            replayed=self._num_replayed,
            missed=self._num_missed,
            released=self._num_released,
        )

    def is_captured(self, key: GraphKey) -> bool:
        """Return whether the key has a graph."""
        return key in self._graphs

    def graph_of(self, key: GraphKey) -> DeviceGraph:
        """Return the graph of a key, for inspection; a `SegmentedGraph` has segments.

        Raises:
            GraphNotCapturedError: The key has no graph.
        """
        return self._held(key).graph

    def memory_of(self, key: GraphKey) -> BakedMemory:
        """Return the memory that the graph of a key uses and writes but does not own.

        Raises:
            GraphNotCapturedError: The key has no graph.
        """
        return self._held(key).memory

    def check_weights(self) -> None:
        """Compare all memory that the graphs use but do not own, for example after a weight update.

        This covers weights, and tensors that the function reaches in other places: attributes,
        lists, closures. If your engine rebinds such a place at each step, do not call this between
        steps.

        Raises:
            ReplacedWeightError: Memory was freed or moved, or a tensor is on other memory.
        """
        for captured in self._graphs.values():
            captured.memory.check(everything=True)

    # No `__getattr__` that forwards: with one, CPython looks up each attribute of a replay by its
    # slow path, which costs some 1,850 instructions.
    def unwrap(self) -> Callable[..., Any]:
        """Return the function, to access the attributes of a wrapped model."""
        return self._function

    @property
    def device(self) -> GraphDevice:
        """The device that captures and replays."""
        return self._device

    @property
    def context(self) -> CallContext:
        """The context that provides run mode and key of a call."""
        return self._context

    @contextlib.contextmanager
    def compared(
        self, compare: Callable[[ComparedCall], Any], *, runs_missing: bool = False
    ) -> Iterator[None]:
        """In the block, pass calls that would replay a graph to a function instead.

        Args:
            compare: receives such a call and returns its result.
            runs_missing: run a call without a graph eagerly, instead of capturing it through
                ``lazy_session``.
        """
        graphs, self._graphs, self._latest = self._graphs, {}, None

        def hand_over(key: GraphKey, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            captured = graphs.get(key)
            if captured is None:
                self._num_missed += 1
                if runs_missing and self._lazy_session is not None:
                    return self._function(*args, **kwargs)
                raise GraphNotCapturedError(
                    f"comparing {self._subject(key)}: no graph is captured under this key; capture "
                    "it first"
                )
            captured.inputs.compare(args, kwargs)
            hook = self._around_replay
            with contextlib.nullcontext() if hook is None else hook(key):
                result = compare(ComparedCall(self, captured, self._subject(key), args, kwargs))
            self._num_replayed += 1
            return result

        self._compare = hand_over
        try:
            yield
        finally:
            self._compare, self._graphs = None, graphs

    def release(self, key: GraphKey) -> None:
        """Wait for the device, then release one graph; this frees the outputs of its replays.

        The next call with the key inside a capture session captures it again.

        Raises:
            GraphNotCapturedError: The key has no graph.
        """
        captured = self._held(key, "releasing")
        self._device.synchronize()
        del self._graphs[key]
        self._latest = None
        captured.outputs = None
        captured.graph.reset()
        self._num_released += 1
        if self._observer is not None:
            self._observer.observe(GraphReleased(name=self.name, key=key))

    def release_all(self) -> None:
        """Release all graphs, if there are any."""
        for key in self.captured_keys:
            self.release(key)

    def _call_uncaptured(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        key = self._context.key
        if key is None:
            raise GraphKeyError(
                f"calling {self.name!r} in run mode {self.run_mode.name}: the context has no graph "
                "key; set mode and key together, with GraphContext.run"
            )
        if self._compare is not None:
            return self._compare(key, args, kwargs)
        session = self._context.capture_session
        if session is not None:
            return self._capture(session, key, args, kwargs)
        self._num_missed += 1
        if self._observer is not None:
            self._observer.observe(GraphMissed(name=self.name, key=key))
        lazy_session = None if self._lazy_session is None else self._lazy_session()
        if lazy_session is not None:
            with lazy_session:
                return self._capture(lazy_session, key, args, kwargs, is_lazy=True)
        raise GraphNotCapturedError(
            f"calling {self._subject(key)}: no graph is captured under this key and no capture "
            f"session is open; {self._held_keys()}; capture it inside `with CaptureSession(...)`, "
            "or call in RunMode.EAGER"
        )

    def _capture(
        self,
        session: CaptureSession,
        key: GraphKey,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        is_lazy: bool = False,
    ) -> Any:
        subject = self._subject(key)
        if session.device != self._device:
            other = session.device.name
            if other == self._device.name:
                other = f"another {type(session.device).__name__} that is called {other} too"
            raise CaptureSessionError(
                f"capturing {subject}: the open session is of device {other}, expected "
                f"{self._device.name} itself; open the session with this callable's device"
            )
        watch = self._watch.begin(
            self._device.torch_device, args, kwargs, session.memory_made, subject
        )
        guard = self._guarded_run(args, kwargs, subject)
        hook, is_breakable = self._around_capture, self.run_mode is RunMode.BREAKABLE
        with contextlib.nullcontext() if hook is None else hook(key):
            capture = session.capture(
                lambda: self._function(*args, **kwargs),
                subject=subject,
                warmup_runs=self._warmup_runs,
                is_breakable=is_breakable,
                watch=watch,
                guard=guard,
            )
        graph, outputs = capture.graph, capture.result
        # A breakable capture has replayed its segments.
        replays = is_lazy and not is_breakable
        try:
            if replays:
                self._refuse_guarded(graph, subject)
            memory = watch.end(outputs)
            kept = self._kept_outputs(outputs, subject) if self._weak_outputs else outputs
        except BaseException:
            graph.reset()
            raise
        layout = InputLayout(
            args,
            kwargs,
            subject,
            session.native_comparison if self._check_first else None,
            in_turn=memory.in_turn,
            on_moved=memory.check,
            is_compared=self._check_always,
        )
        captured = _CapturedGraph(key, graph, kept, layout, memory)
        captured.is_checked = not self._check_first
        if self._check_always or (self._check_first and memory.in_turn):
            captured.holds = layout.holds
        captured.holds = memory.with_numbers(captured.holds)
        self._graphs[key] = captured
        self._num_captured += 1
        if self._observer is not None:
            self._observer.observe(
                GraphCaptured(
                    name=self.name,
                    key=key,
                    seconds=capture.seconds,
                    warmup_seconds=capture.warmup_seconds,
                )
            )
        if replays:
            self._replay_told(captured)
        # Not the kept outputs: whoever uses these while more is captured needs their memory alive.
        return outputs

    def _guarded_run(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], subject: str
    ) -> GuardedRun | None:
        if self._guard is CaptureGuard.OFF:
            return None
        device = self._device.torch_device
        watch = self._watch.begin(device, args, kwargs, {}, subject, is_for_replays=False)
        return GuardedRun(self._function, watch, device, subject, guard=self._guard)

    def _refuse_guarded(self, graph: DeviceGraph, subject: str) -> None:
        device = self._device
        if not isinstance(device, GuardingDevice) or not device.is_guarded(graph):
            return
        raise CaptureSessionError(
            f"capturing {subject}: the call would replay the new graph at once (lazy_session), and "
            "its attention is recorded for updates, which the graph would wait for without end. "
            "The graph was released; capture it in a session of your own, compile its update plan, "
            "and replay it in a step of an update lane"
        )

    def _uncheck(self) -> None:
        """Compare every graph with its capture again at its next replay."""
        num_freed = len(self._freed)
        for captured in list(self._graphs.values()):
            captured.is_checked = False
        # Only now, and no others: an interrupt, or another thread that frees, loses nothing.
        del self._freed[:num_freed]

    def _kept_outputs(self, outputs: Any, subject: str) -> Any:
        try:
            return map_tensors(outputs, lambda tensor: weak_tensor(tensor, self._device))
        except TypeError as error:
            raise WeakOutputError(
                f"capturing {subject}: outputs of type {type(outputs).__name__} cannot be kept "
                "weakly; return tensors in lists, tuples, dicts or dataclasses, or pass "
                "weak_outputs=False"
            ) from error

    def _replay_told(self, captured: _CapturedGraph) -> None:
        """Replay inside the hook, and notify the observer."""
        hook, observer = self._around_replay, self._observer
        replay: Callable[[], None] = captured.replay
        if observer is not None and isinstance(captured.graph, SegmentedGraph):

            def tell(segment: str, runs_eagerly: bool, began: float, seconds: float) -> None:
                observer.observe(
                    SegmentReplayed(
                        name=self.name,
                        key=captured.key,
                        segment=segment,
                        runs_eagerly=runs_eagerly,
                        began=began,
                        seconds=seconds,
                    )
                )

            replay = functools.partial(captured.graph.replay_observed, tell)
        with contextlib.nullcontext() if hook is None else hook(captured.key):
            started = time.perf_counter()
            try:
                replay()
            except RuntimeError as error:
                self._raise_replay_error(captured, error)
            self._num_replayed += 1
            seconds = time.perf_counter() - started
        if observer is not None:
            key = captured.key
            observer.observe(GraphReplayed(name=self.name, key=key, began=started, seconds=seconds))

    def _raise_replay_error(self, captured: _CapturedGraph, error: RuntimeError) -> NoReturn:
        subject = self._subject(captured.key)
        found: RuntimeError = error
        # Segments name what the device refused, so this is of a function that runs eagerly.
        if not isinstance(error, GraphRuntimeError) and self.run_mode is not RunMode.BREAKABLE:
            found = diagnose(error, doing="replaying", subject=subject)
        session = self._context.capture_session
        capturing = None if session is None else session.capturing
        # torch_npu 2.10 refuses the replay itself, without an error code of the runtime.
        if capturing is not None and isinstance(
            found, (IllegalWhileCapturingError, UnknownDeviceError)
        ):
            raise CaptureSessionError(
                f"replaying {subject}: {capturing} is being captured, and it calls this callable, "
                f"which has a graph of its own for the same run mode, {self.run_mode.name}, and "
                "key; a graph cannot be replayed inside a capture, so expected two run modes; give "
                "the inner callable another one, such as PIECEWISE inside FULL, and it becomes "
                "part of the outer graph"
            ) from error
        if found is error:
            raise error
        raise found from error

    def _held(self, key: GraphKey, doing: str = "looking at") -> _CapturedGraph:
        captured = self._graphs.get(key)
        if captured is None:
            raise GraphNotCapturedError(
                f"{doing} {self._subject(key)}: no graph is held under this key; "
                f"{self._held_keys()}"
            )
        return captured

    def _subject(self, key: GraphKey) -> str:
        return f"{self.name!r} under key {key}"

    def _held_keys(self) -> str:
        if not self._graphs:
            return "no key is captured"
        return f"captured keys: {', '.join(str(key) for key in self.captured_keys)}"


class _CapturedGraph:
    """One graph of a graphed callable, with everything its replay needs."""

    __slots__ = (
        "__weakref__",
        "graph",
        "holds",
        "inputs",
        "is_checked",
        "key",
        "memory",
        "outputs",
        "replay",
    )

    def __init__(
        self,
        key: GraphKey,
        graph: DeviceGraph,
        outputs: Any,
        inputs: InputLayout,
        memory: BakedMemory,
    ) -> None:
        self.key = key
        self.graph = graph
        self.replay = graph.replay
        self.outputs = outputs
        self.inputs = inputs
        # Compares at each replay, where anything is compared then.
        self.holds: Holds | None = None
        self.memory = memory
        self.is_checked = False
