"""Captures a function once per signature and replays it afterwards.

Note [a call is never run twice]: a function may write memory that it does not return, such as a
cache. The first call with a signature therefore runs eagerly, and its result is returned. Then the
function is captured on buffers, of which the device runs nothing. A failure there costs a graph and
no value. A capture in segments runs the work it captures. With breaks, therefore, the second call
with a signature is captured, and the capture is that call: once a part of it has run, a failure is
raised.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import threading
import traceback
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from npu_graph_runtime.by_signature.call_signature import (
    Flattened,
    flatten,
    layouts,
    modes,
    rebuilt,
    unsupported,
)
from npu_graph_runtime.by_signature.copied_inputs import CopiedInputs, Writes
from npu_graph_runtime.by_signature.returned_outputs import FirstResult, ReturnedOutputs
from npu_graph_runtime.capturing.breakable_capture import SegmentedGraph
from npu_graph_runtime.capturing.capture_session import CaptureSession
from npu_graph_runtime.capturing.eager_segment import EagerSegment
from npu_graph_runtime.capturing.fresh_memory import memory_of
from npu_graph_runtime.capturing.graphed_callable import GraphedCallable
from npu_graph_runtime.capturing.input_layout import AddressCheck
from npu_graph_runtime.capturing.watching.capture_watch import KeptMemory
from npu_graph_runtime.capturing.watching.captured_memory import CapturedMemory
from npu_graph_runtime.capturing.watching.reachable_values import (
    outermost_modules,
    reachable_values,
)
from npu_graph_runtime.device import GuardingDevice
from npu_graph_runtime.errors import (
    CaptureSessionError,
    OutOfDeviceMemoryError,
    OutOfDeviceResourcesError,
    ReplacedWeightError,
    UnsupportedInputError,
)
from npu_graph_runtime.graph_context import GraphContext
from npu_graph_runtime.graph_key import GraphKey
from npu_graph_runtime.run_mode import RunMode
from npu_graph_runtime.torch_internals import layout_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from npu_graph_runtime.device import GraphDevice, Stream

# Signatures without a graph that are remembered: one that is forgotten is tried again.
_MOST_REFUSED = 1024
# Captures of one signature whose weights are replaced again and again.
_MOST_RECAPTURES = 8
# Failures that the counters list.
_LISTED = 16


class EagerReason(enum.Enum):
    """Why a call of a graphed function ran eagerly."""

    FIRST_CALL = "first call of the signature"
    """The call came first; the function was captured behind it, or will be at the next one."""

    CAPTURE_FAILED = "the signature could not be captured"
    """The device or a check refused the capture; see `GraphedCounters.failures`."""

    UNSUPPORTED_INPUT = "an argument cannot be part of a signature"
    """An argument that is no tensor, no container and no plain value."""

    SHARED_MEMORY = "arguments share memory that the graph writes"
    """Buffers would not share it."""

    INSIDE_CAPTURE = "another capture is under way"
    """The call is part of that one."""

    NESTED = "called by itself"
    """The function has called its own graphed version."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphedCounters:
    """Counts the calls of a graphed function since it was created.

    Attributes:
        captured: graphs captured, including those captured again.
        replayed: calls that replayed a graph.
        released: graphs released.
        eager: calls that ran eagerly, by reason; reasons that did not occur are omitted.
        failures: the latest capture failures, each with its signature.
    """

    captured: int
    replayed: int
    released: int
    eager: Mapping[EagerReason, int]
    failures: tuple[str, ...]


class Graphed:
    """A function with one graph per call signature; create it with :func:`graphed`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        device: GraphDevice,
        most: int,
        breaks: GraphContext | None,
        is_copied: bool,
        uncopied: Collection[int | str],
        name: str | None,
        strict: bool,
        kept_memory: KeptMemory,
        pool: object,
    ) -> None:
        text = name or str(getattr(function, "__qualname__", type(function).__qualname__))
        if most < 1:
            raise ValueError(f"making graphs of {text!r}: most is {most}, expected 1 or more")
        if isinstance(uncopied, str):
            raise TypeError(
                f"making graphs of {text!r}: uncopied is {uncopied!r}, expected a list of numbers "
                f"and names, since a text is one of letters; pass [{uncopied!r}]"
            )
        self._function = function
        self._device = device
        self._device_type = device.torch_device.type
        self._most = most
        self._name = text
        self._context = breaks or GraphContext()
        self._mode = RunMode.FULL if breaks is None else RunMode.BREAKABLE
        self._is_copied = is_copied
        self._uncopied = frozenset(uncopied)
        self._is_strict = strict
        self._pool = device.create_memory_pool() if pool is None else pool
        self._stream = device.create_stream()
        self._graphed = GraphedCallable(
            function,
            device=device,
            context=self._context,
            run_mode=self._mode,
            name=text,
            # The arguments of the graph are buffers of this object.
            address_check=AddressCheck.FIRST_REPLAY,
            kept_memory=kept_memory,
            warmup_runs=0,
        )
        owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        self._module = owner if isinstance(owner, nn.Module) else None
        others = outermost_modules(function) if self._module is None else ()
        self._other_modules = tuple(map(weakref.ref, others))
        self._entries: collections.OrderedDict[_Key, _Entry] = collections.OrderedDict()
        self._latest: _Latest | None = None
        self._seen: collections.OrderedDict[_Key, _Seen] = collections.OrderedDict()
        self._refused: collections.OrderedDict[_Key, int | None] = collections.OrderedDict()
        self._recaptures: dict[_Key, int] = {}
        self._counts = dict.fromkeys(EagerReason, 0)
        self._failures: collections.deque[str] = collections.deque(maxlen=_LISTED)
        self._has_warned: set[type] = set()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._is_inside = False
        self._used_on: Stream | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the graph of the call's signature, or run the function.

        Raises:
            UnsupportedInputError: The call cannot be captured, and ``strict`` is true.
            Exception: Any error of the function; and, for a function with breaks, a failure of a
                capture or replay of which a part has run.
        """
        with self._lock:
            if self._is_inside:
                return self._eagerly(EagerReason.NESTED, args, kwargs)
            self._is_inside = True
            try:
                return self._call(args, kwargs)
            finally:
                self._is_inside = False

    def __repr__(self) -> str:
        return f"Graphed({self._name!r}, {len(self._entries)} of at most {self._most} graphs)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `copy`, `deepcopy` and `pickle`: a copy would share graphs, or have none.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"copying or pickling the graphed function {self._name!r}: its graphs belong to this "
            "object; call graphed() on the function, or on the copied method, once more"
        )

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, for :func:`inspect.signature`."""
        return self._function

    @property
    def function(self) -> Callable[..., Any]:
        """The original function, which runs eagerly; use it to access a module's attributes."""
        return self._function

    @property
    def num_graphs(self) -> int:
        """Number of signatures that currently have a graph."""
        return len(self._entries)

    @property
    def counters(self) -> GraphedCounters:
        """The current counters."""
        counters = self._graphed.counters
        return GraphedCounters(
            captured=counters.captured,
            replayed=counters.replayed,
            released=counters.released,
            eager={reason: count for reason, count in self._counts.items() if count},
            failures=tuple(self._failures),
        )

    def check_weights(self) -> None:
        """Compare all memory that the graphs use; see `GraphedCallable.check_weights`.

        Raises:
            ReplacedWeightError: Memory was replaced; call :meth:`release_all` to capture again.
        """
        with self._lock:
            self._graphed.check_weights()

    def release_all(self) -> None:
        """Wait for the device and release all graphs and buffers; forget rejected signatures.

        The next call with each signature counts as the first one.
        """
        with self._lock:
            self._latest = None
            self._entries.clear()
            self._seen.clear()
            self._refused.clear()
            self._recaptures.clear()
            self._graphed.release_all()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._context.capture_session is not None or self._device.is_capturing():
            return self._eagerly(EagerReason.INSIDE_CAPTURE, args, kwargs)
        try:
            flat = flatten(args, kwargs)
            now = modes(self._device_type)
            latest = self._latest
            if latest is not None and latest.holds(flat, now, self._is_training()):
                return self._replay(latest.key, latest.entry, flat, args, kwargs)
            key = self._key(flat, now, args, kwargs)
            entry = self._entries.get(key)
        except UnsupportedInputError:
            return self._call_unsupported(args, kwargs)
        if entry is not None:
            self._entries.move_to_end(key)
            if not self._uncopied:
                self._latest = _Latest(key, entry, flat)
            return self._replay(key, entry, flat, args, kwargs)
        if key in self._refused and self._is_still_refused(key):
            return self._eagerly(EagerReason.CAPTURE_FAILED, args, kwargs)
        return self._call_uncaptured(_Call(key, flat, args, kwargs))

    def _is_training(self) -> Hashable:
        module = self._module
        if module is not None:
            return module.training
        return tuple([getattr(other(), "training", None) for other in self._other_modules])

    def _key(
        self,
        flat: Flattened,
        now: tuple[Hashable, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Key:
        key = (flat.structure, layouts(flat.tensors), now, self._is_training())
        if not self._uncopied:
            return key
        used = (flat.tensors[number] for number in self._uncopied_in(args, kwargs))
        return *key, tuple((tensor.data_ptr(), memory_of(tensor)) for tensor in used)

    def _uncopied_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
        """Return the indices of the tensors that are not copied."""
        if not self._uncopied:
            return []
        numbers: list[int] = []
        begin = 0
        for name, value in (*enumerate(args), *kwargs.items()):
            end = begin + len(flatten((value,), {}).tensors)
            if name in self._uncopied:
                numbers += range(begin, end)
            begin = end
        return numbers

    def _replay(
        self,
        key: _Key,
        entry: _Entry,
        flat: Flattened,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        inputs, outputs, tensors = entry.inputs, entry.outputs, flat.tensors
        if inputs.writes.is_any and inputs.share_memory(tensors):
            return self._eagerly(EagerReason.SHARED_MEMORY, args, kwargs)
        if outputs.others and not outputs.are_there:
            return self._recapture(_Call(key, flat, args, kwargs))
        stream = self._device.current_stream()
        if stream is not self._used_on:
            self._follow(stream)
        inputs.load(tensors)
        try:
            with entry.span:
                result = self._graphed(*inputs.args, **inputs.kwargs)
        except ReplacedWeightError as error:
            if _came_through(error, SegmentedGraph.replay):
                raise  # by a function that runs eagerly: a part of the call has run
            return self._recapture(_Call(key, flat, args, kwargs))
        if inputs.writes.written:
            inputs.store(tensors, inputs.writes.written)
        return outputs.give(result, tensors)

    def _follow(self, stream: Stream) -> None:
        """Let the current stream wait for earlier calls, which use the same buffers and memory."""
        before, self._used_on = self._used_on, stream
        if before is not None and before != stream:
            stream.wait_stream(before)

    def _recapture(self, call: _Call) -> Any:
        """Capture a signature again after its weights were replaced."""
        self._release(call.key)
        if len(self._recaptures) > _MOST_REFUSED:
            self._recaptures.clear()
        number = self._recaptures[call.key] = self._recaptures.get(call.key, 0) + 1
        if number <= _MOST_RECAPTURES:
            return self._call_uncaptured(call)
        problem = ReplacedWeightError(
            f"{self._name!r}: memory or numbers that the graph uses were replaced "
            f"{_MOST_RECAPTURES} times; write new values into the tensors (copy_), or pass them as "
            "arguments; keep numbers that change in tensors of the device"
        )
        self._refuse(call, problem)
        return self._eagerly(EagerReason.CAPTURE_FAILED, call.args, call.kwargs)

    def _call_unsupported(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = unsupported(args, kwargs)
        self._report(
            UnsupportedInputError(
                f"calling {self._name!r}: {found}, expected tensors, plain values, and lists, "
                "tuples, dicts and dataclasses of them, which select the graph; bind the object "
                "to the function instead, by a closure or functools.partial"
            )
        )
        return self._eagerly(EagerReason.UNSUPPORTED_INPUT, args, kwargs)

    def _call_uncaptured(self, call: _Call) -> Any:
        key, flat, args, kwargs = call
        self._refused.pop(key, None)
        seen = self._seen.pop(key, None)
        try:
            uncopied = self._uncopied_in(args, kwargs)
            inputs = CopiedInputs(
                args, kwargs, flat.tensors, device=self._device, uncopied=uncopied
            )
            inputs.load(flat.tensors)
        except Exception as error:  # noqa: BLE001 - the allocator's, for one
            self._refuse(call, error)
            return self._eagerly(EagerReason.CAPTURE_FAILED, args, kwargs)
        if seen is not None:
            inputs.writes = seen.writes
            if self._may_share(inputs, flat.tensors):
                self._seen[key] = seen
                return self._eagerly(EagerReason.SHARED_MEMORY, args, kwargs)
            return self._capture_running(call, inputs, seen.result)
        # The next call in segments is captured while it runs, so what it writes is learnt before.
        is_breakable = self._mode is RunMode.BREAKABLE
        memory = CapturedMemory(self._device.torch_device, flat.tensors, {}, [])
        with memory if is_breakable else contextlib.nullcontext():
            result = self._eagerly(EagerReason.FIRST_CALL, args, kwargs)
        try:
            _require_unchanged(call)
            inputs.note_written(inputs.changed(flat.tensors), memory, flat.tensors)
            first = FirstResult(result, self._device.torch_device)
            if is_breakable:
                self._seen[key] = _Seen(first, inputs.writes)
                if len(self._seen) > _MOST_REFUSED:
                    self._seen.popitem(last=False)
            else:
                self._capture_with_memory(call, inputs, first)
        except Exception as error:  # noqa: BLE001 - whatever the function or the device raises
            self._refuse(call, error)
        return result

    def _may_share(self, inputs: CopiedInputs, tensors: list[Tensor]) -> bool:
        """Return whether a call must not be captured while it runs on buffers of its own."""
        if inputs.overlap(tensors) or inputs.share_memory(tensors):
            return True
        memory = set(inputs.memory(tensors))
        return inputs.writes.is_any and any(
            isinstance(value, Tensor)
            and value.device.type == self._device_type
            and value.layout is torch.strided
            and memory_of(value) in memory
            for _, _, value in reachable_values(self._function)
        )

    def _capture_with_memory(self, call: _Call, inputs: CopiedInputs, first: FirstResult) -> None:
        """Capture; if memory or streams run out, release the least recently used graph, retry."""
        try:
            self._capture(call, inputs, first)
        except (OutOfDeviceMemoryError, OutOfDeviceResourcesError):
            if not self._entries:
                raise
        else:
            return
        self._release(next(iter(self._entries)))
        self._capture(call, inputs, first)

    def _capture_running(self, call: _Call, inputs: CopiedInputs, first: FirstResult) -> Any:
        """Capture a call in segments, which also runs it, and return its result."""
        progress, tensors = _Progress(), call.flat.tensors
        try:
            entry = self._capture(call, inputs, first, progress)
        except Exception as error:
            is_raised = progress.num_run > 0 and not progress.results
            self._refuse(call, error, is_raised=is_raised)
            if progress.num_run == 0:
                return self._eagerly(EagerReason.CAPTURE_FAILED, call.args, call.kwargs)
            if not progress.results:
                raise
            inputs.store(tensors, inputs.copied)
            return _unkept(progress.results[0], inputs, tensors, error)
        if inputs.share_memory(tensors):
            raise UnsupportedInputError(
                f"calling {self._name!r}: an argument is on memory that the function also uses by "
                "itself, and it writes some of it, so the results of this call may be wrong; pass "
                "a copy (clone())"
            )
        inputs.store(tensors, inputs.writes.written)
        return entry.outputs.give(progress.results[0], tensors)

    def _capture(
        self,
        call: _Call,
        inputs: CopiedInputs,
        first: FirstResult,
        progress: _Progress | None = None,
    ) -> _Entry:
        graphed, context = self._graphed, self._context
        name = f"call {next(self._numbers)}"
        graph_key = GraphKey(num_tokens=1, extra=(name, _described(call.flat)))
        session = CaptureSession(self._device, context, self._pool, self._stream)
        span = context.run(self._mode, graph_key)
        try:
            with session, span, _no_autocast_cache():
                result = graphed(*inputs.args, **inputs.kwargs)
        finally:
            if progress is not None:
                progress.num_run = session.num_run
        if progress is not None:
            progress.results.append(result)
        try:
            outputs = self._outputs(graph_key, result, inputs, first)
        except BaseException:
            graphed.release(graph_key)
            raise
        inputs.hold_weakly()
        entry = self._entries[call.key] = _Entry(graph_key, span, inputs, outputs)
        if len(self._entries) > self._most:
            self._release(next(iter(self._entries)))
        return entry

    def _outputs(
        self, graph_key: GraphKey, result: Any, inputs: CopiedInputs, first: FirstResult
    ) -> ReturnedOutputs:
        """Return how a captured graph returns its results, or reject it."""
        self._require_no_updates(graph_key)
        memory = self._graphed.memory_of(graph_key)
        if memory.written_elsewhere is not None:
            raise UnsupportedInputError(
                f"the function writes memory of another device ({memory.written_elsewhere}), "
                "which a replay does not; let a function that runs eagerly do it"
            )
        inputs.note_written(inputs.writes.written, memory, inputs.buffers)
        return ReturnedOutputs(result, first, inputs.buffers, is_copied=self._is_copied)

    def _require_no_updates(self, graph_key: GraphKey) -> None:
        device, graph = self._device, self._graphed.graph_of(graph_key)
        graphs: list[object] = [graph]
        if isinstance(graph, SegmentedGraph):
            graphs += [
                segment.graph for segment in graph.segments if not isinstance(segment, EagerSegment)
            ]
        if isinstance(device, GuardingDevice) and any(map(device.is_guarded, graphs)):
            raise CaptureSessionError(
                "the function records attention for updates, which its graph would wait for; use "
                "GraphedCallable, an update plan and an update lane"
            )

    def _release(self, key: _Key) -> None:
        self._latest = None
        entry = self._entries.pop(key)
        self._graphed.release(entry.graph_key)

    def _is_still_refused(self, key: _Key) -> bool:
        """Return whether the reason for an earlier capture failure still applies."""
        num_graphs = self._refused[key]
        return num_graphs is None or len(self._entries) >= num_graphs

    def _refuse(self, call: _Call, error: Exception, *, is_raised: bool = False) -> None:
        is_short = isinstance(error, (OutOfDeviceMemoryError, OutOfDeviceResourcesError))
        self._refused[call.key] = len(self._entries) if is_short else None
        if len(self._refused) > _MOST_REFUSED:
            self._refused.popitem(last=False)
        self._failures.append(f"{_described(call.flat)}: {type(error).__name__}: {error}")
        if not is_raised:
            self._report(error)

    def _report(self, error: Exception) -> None:
        if self._is_strict:
            raise error
        if type(error) in self._has_warned:
            return
        self._has_warned.add(type(error))
        warnings.warn(
            f"{self._name!r} runs eagerly for some calls, said once for each kind of error: "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=6,
        )

    def _eagerly(self, reason: EagerReason, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._counts[reason] += 1
        return self._function(*args, **kwargs)


def graphed(
    function: Callable[..., Any] | None = None,
    *,
    device: GraphDevice,
    most: int = 32,
    breaks: GraphContext | None = None,
    copy_outputs: bool = True,
    uncopied: Collection[int | str] = (),
    name: str | None = None,
    strict: bool = False,
    kept_memory: KeptMemory = KeptMemory.RAISE,
    pool: object = None,
) -> Any:
    """Return a function that is captured at the first call with each signature, and then replayed.

    Call it like the original function. A signature consists of everything that may change the
    launches:
    shapes, strides, dtypes and `requires_grad` of all tensors, also in nested lists, tuples, dicts
    and dataclasses; which of them are the same object; all plain values with their types; and the
    modes of torch. A call copies its tensors into the graph's buffers, replays, and copies the
    results. Values that the function writes into its arguments are copied back into yours.

    The first call with a signature runs eagerly, and the function is then captured, so its Python
    code runs twice. If a capture fails, calls with this signature run eagerly; a warning gives the
    reason, once per kind of error, and ``counters`` count them. With ``breaks``, the second call is
    captured, and the capture is that call: an error after a part of it has run is raised.

    Everything else that the function reads (weights, buffers, closures) is watched as in
    :class:`~npu_graph_runtime.GraphedCallable`. If memory that a replay would use was freed, the
    function is captured again. If memory was replaced while something keeps the old memory alive,
    only :meth:`Graphed.check_weights` notices.

    Several threads may call it: one call runs at a time, and the others wait. Calls on several
    streams are ordered. While a graph is captured, other threads should not use the device. Inside
    another capture, it calls the function, which becomes part of that capture.

    Args:
        function: function or module to capture; without it a decorator is returned.
        device: device that captures and replays.
        most: maximum number of graphs. For a new one, the least recently used graph is released.
        breaks: context of the functions that :func:`~npu_graph_runtime.runs_eagerly` marks: the
            function is captured in segments between them.
        copy_outputs: whether you own the results. Without a copy they are in the graph's memory,
            and the next call overwrites them.
        uncopied: arguments that are not copied, such as a key/value cache: positional ones by
            index, keyword arguments by name. The graph uses your memory, so the address is part of
            the signature.
        name: name for messages; by default that of the function.
        strict: raise an error if a call cannot be captured, instead of running it eagerly.
        kept_memory: as for :class:`~npu_graph_runtime.GraphedCallable`.
        pool: a memory pool of ``device`` for all graphs; created by default.

    Returns:
        A :class:`~npu_graph_runtime.Graphed`.

    Raises:
        ValueError: ``most`` is less than 1.
        TypeError: ``uncopied`` is a string.
    """
    make = functools.partial(
        Graphed,
        device=device,
        most=most,
        breaks=breaks,
        is_copied=copy_outputs,
        uncopied=uncopied,
        name=name,
        strict=strict,
        kept_memory=kept_memory,
        pool=pool,
    )
    return make if function is None else make(function)


_Key = tuple[Any, ...]


class _Call(NamedTuple):
    key: _Key
    flat: Flattened
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Entry(NamedTuple):
    graph_key: GraphKey
    span: AbstractContextManager[object]
    inputs: CopiedInputs
    outputs: ReturnedOutputs


class _Latest:
    """The previous call; comparing with it is faster than computing a signature."""

    __slots__ = ("_grads", "_guard", "_structure", "entry", "key")

    def __init__(self, key: _Key, entry: _Entry, flat: Flattened) -> None:
        self.key = key
        self.entry = entry
        self._structure = flat.structure
        self._grads = [tensor.requires_grad for tensor in flat.tensors]
        # Of types, shapes, strides, dtypes and devices, in the modes of torch that hold now.
        self._guard = layout_guard(flat.tensors) if flat.tensors else None

    def holds(self, flat: Flattened, now: tuple[Hashable, ...], is_training: Hashable) -> bool:
        """Return whether another call has the same signature; false means unknown."""
        guard, key = self._guard, self.key
        return (
            guard is not None
            and flat.structure == self._structure
            and guard(*flat.tensors)
            and now == key[2]
            and is_training == key[3]
            and [tensor.requires_grad for tensor in flat.tensors] == self._grads
        )


class _Seen(NamedTuple):
    """The results and writes of an eager call with a signature."""

    result: FirstResult
    writes: Writes


class _Progress:
    """How far a capture that also runs its call has come."""

    def __init__(self) -> None:
        self.num_run = 0
        self.results: list[Any] = []


def _require_unchanged(call: _Call) -> None:
    """Reject functions that change their arguments other than by writing into tensors."""
    now = flatten(call.args, call.kwargs)
    if (now.structure, layouts(now.tensors)) != call.key[:2] or any(
        tensor is not before for tensor, before in zip(now.tensors, call.flat.tensors, strict=True)
    ):
        raise UnsupportedInputError(
            "the function changes containers, shapes or plain values among its arguments, "
            "which replays would not; return what is new"
        )


def _unkept(result: Any, inputs: CopiedInputs, tensors: list[Tensor], error: Exception) -> Any:
    """Return the result of a call whose graph was released."""
    found = flatten((result,), {}).tensors
    memory = {memory_of(buffer) for buffer in inputs.buffers if buffer.numel()}
    given: list[Tensor] = []
    for tensor in found:
        numbers = [number for number, buffer in enumerate(inputs.buffers) if buffer is tensor]
        if not numbers and tensor.numel() and memory_of(tensor) in memory:
            raise error
        given.append(tensors[numbers[0]] if numbers else tensor)
    return rebuilt(result, iter(given))


def _described(flat: Flattened) -> str:
    shapes = [
        f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" for tensor in flat.tensors
    ]
    return ", ".join(shapes) or "no tensors"


def _came_through(error: BaseException, function: Callable[..., Any]) -> bool:
    code = function.__code__
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


@contextlib.contextmanager
def _no_autocast_cache() -> Iterator[None]:
    """Let a capture cast its weights itself: cached casts of autocast are freed with the mode."""
    if not torch.is_autocast_cache_enabled():
        yield
        return
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)
        torch.clear_autocast_cache()
