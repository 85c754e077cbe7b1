"""In-order queues of device work and their deterministic execution."""

from __future__ import annotations

import collections
import itertools
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from npu_graph_runtime.errors import DeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from npu_graph_runtime.devices.fake_stream import FakeStream


class Work(NamedTuple):
    """One entry of a stream.

    Attributes:
        what: a description for messages.
        try_run: runs it and returns true, or returns false if it still has to wait.
    """

    what: str
    try_run: Callable[[], bool]


class FakeScheduler:
    """Runs the work of all streams on the thread that adds to one of them.

    Work runs as soon as nothing before it in its stream waits, so the order is deterministic. A
    failed kernel is reported by the next synchronisation, as on a device. The arguments are those
    of `FakeDevice`.

    Attributes:
        lock: lock for changes of streams or events.
        default_stream: the stream that is current where a thread uses no other.
        thread: of each thread the stream that it uses, as its ``stream``.
        numbers: those of streams.
        is_held: whether work runs only in :meth:`advance` and in synchronisations.
        capturing: what is being captured, for messages; ``None`` for nothing.
        num_synchronizations: how often the host has waited.
    """

    def __init__(self, deadlock_timeout: float, *, is_held: bool = False) -> None:
        self.lock = threading.RLock()
        self.is_held = is_held
        self.capturing: str | None = None
        self.num_synchronizations = 0
        self.default_stream: FakeStream
        self.thread = threading.local()
        self.numbers = itertools.count()
        self._changed = threading.Condition(self.lock)
        self._deadlock_timeout = deadlock_timeout
        self._busy: dict[FakeStream, None] = {}
        self._launches: collections.deque[Callable[[], None]] = collections.deque()
        self._failure: RuntimeError | None = None
        self._running_thread: int | None = None

    @property
    def current(self) -> FakeStream:
        """The calling thread's current stream."""
        stream: FakeStream = getattr(self.thread, "stream", self.default_stream)
        return stream

    def add(self, stream: FakeStream, work: Work) -> None:
        """Append work and, unless ``is_held``, run whatever can run."""
        with self.lock:
            stream.pending.append(work)
            self._busy[stream] = None
            if not self.is_held:
                self._run()
            self._changed.notify_all()

    def put_off(self, launch: Callable[[], None]) -> None:
        """Leave a launch in the launch queue until the queue advances or is flushed."""
        with self.lock:
            self._launches.append(launch)

    def flush(self) -> None:
        """Move everything in the launch queue to the streams."""
        with self.lock:
            while self._launches:
                self._launches.popleft()()

    def advance(self, random: Random, num_items: int | None) -> int:
        """Run pending work, each item from a random stream; see `FakeDevice.advance`.

        Returns:
            Number of items that ran: fewer than requested if nothing more can run.
        """
        count = 0
        with self.lock:
            while num_items is None or count < num_items:
                if self._launches and random.random() < 0.5:
                    self._launches.popleft()()
                if self._run_one(random):
                    count += 1
                elif self._launches:
                    self._launches.popleft()()
                else:
                    break
            self._changed.notify_all()
        return count

    def synchronize(self, subject: str, is_done: Callable[[], bool]) -> None:
        """Block the host until a condition is true after all work that can run has run.

        Raises:
            RuntimeError: Something is being captured, or a kernel failed earlier.
            DeadlockError: The condition cannot become true any more; all pending work is dropped.
        """
        with self.lock:
            self.refuse_while_capturing(f"synchronising {subject}")
            self.num_synchronizations += 1
            self.flush()
            if self.is_held:
                self._run()
            deadline = time.monotonic() + self._deadlock_timeout
            while not is_done():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self._deadlock(subject)
                self._changed.wait(remaining)
                if self.is_held:
                    self.flush()
                    self._run()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure

    def refuse_while_capturing(self, doing: str) -> None:
        """Raise the device's error for a call that is illegal while capturing.

        Raises:
            RuntimeError: Something is being captured.
        """
        if self.capturing is not None:
            raise device_failure(107027, f"{doing} while {self.capturing} is capturing")

    def is_running_here(self) -> bool:
        """Return whether the calling thread is running work rather than launching it."""
        return self._running_thread == threading.get_ident()

    def is_idle(self) -> bool:
        """Return whether every stream is empty."""
        return not self._busy and not self._launches

    def _run(self) -> None:
        self._running_thread = threading.get_ident()
        try:
            while any([self._run_stream(each) for each in tuple(self._busy)]):  # noqa: C419 - all
                pass
        finally:
            self._running_thread = None

    def _run_one(self, random: Random) -> bool:
        """Run one item of a random stream, and return whether any could run."""
        streams = list(self._busy)
        random.shuffle(streams)
        self._running_thread = threading.get_ident()
        try:
            for stream in streams:
                if self._try_run(stream.pending[0]):
                    stream.pending.popleft()
                    if not stream.pending:
                        del self._busy[stream]
                    return True
        finally:
            self._running_thread = None
        return False

    def _run_stream(self, stream: FakeStream) -> bool:
        """Run everything that can run in one stream, and return whether anything did."""
        progress = False
        while stream.pending and self._try_run(stream.pending[0]):
            stream.pending.popleft()
            progress = True
        if not stream.pending:
            self._busy.pop(stream, None)
        return progress

    def _try_run(self, work: Work) -> bool:
        try:
            return work.try_run()
        except Exception as error:  # noqa: BLE001 - a kernel may fail in any way
            if self._failure is None:
                self._failure = device_failure(507015, f"{work.what} failed: {error}")
                self._failure.__cause__ = error
            return True

    def _deadlock(self, subject: str) -> DeadlockError:
        waits = [
            f"{stream.name} waits for {stream.pending[0].what} with {len(stream.pending) - 1} "
            "more behind it"
            for stream in self._busy
        ]
        for stream in self._busy:
            stream.pending.clear()
        self._busy.clear()
        return DeadlockError(
            f"synchronising {subject}: nothing can signal what the streams wait for: "
            f"{'; '.join(waits)}; record each external event once for each replay; the pending "
            "work was dropped"
        )


def device_failure(code: int, text: str) -> RuntimeError:
    """Return a failure in the form of torch_npu's reports."""
    return RuntimeError(f"FakeDevice: {text}, error code is {code}")
