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


class Work(NamedTuple):
    """One entry of a queue.

    Attributes:
        what: a description for messages.
        try_run: runs it and returns true, or returns false if it still has to wait.
    """

    what: str
    try_run: Callable[[], bool]


class WorkQueue:
    """The pending work of one stream, run in order.

    Attributes:
        name: name of the stream, for messages.
        pending: work not run yet, oldest first.
    """

    __slots__ = ("name", "pending")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: collections.deque[Work] = collections.deque()


class FakeScheduler:
    """Runs the work of all queues on the thread that adds to one of them.

    Work runs as soon as nothing before it in its queue waits, so the order is deterministic. A
    failed kernel is reported by the next synchronisation, as on a device. The arguments are those
    of `FakeDevice`.

    Attributes:
        lock: lock for changes of queues or events.
        is_held: whether work runs only in :meth:`advance` and in synchronisations.
        capturing: what is being captured, for messages; ``None`` for nothing.
        num_synchronizations: how often the host has waited.
    """

    def __init__(self, deadlock_timeout: float, *, is_held: bool = False) -> None:
        self.lock = threading.RLock()
        self.is_held = is_held
        self.capturing: str | None = None
        self.num_synchronizations = 0
        self._changed = threading.Condition(self.lock)
        self._deadlock_timeout = deadlock_timeout
        self._numbers = itertools.count()
        self._busy: dict[WorkQueue, None] = {}
        self._launches: collections.deque[Callable[[], None]] = collections.deque()
        self._failure: RuntimeError | None = None
        self._running_thread: int | None = None

    def create_queue(self) -> WorkQueue:
        """Return a new, empty queue."""
        with self.lock:
            return WorkQueue(f"stream {next(self._numbers)}")

    def add(self, queue: WorkQueue, work: Work) -> None:
        """Append work and, unless ``is_held``, run whatever can run."""
        with self.lock:
            queue.pending.append(work)
            self._busy[queue] = None
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
        """Run pending work, each item from a random queue; see `FakeDevice.advance`.

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
        """Return whether every queue is empty."""
        return not self._busy and not self._launches

    def _run(self) -> None:
        self._running_thread = threading.get_ident()
        try:
            while any([self._run_queue(queue) for queue in tuple(self._busy)]):  # noqa: C419 - all
                pass
        finally:
            self._running_thread = None

    def _run_one(self, random: Random) -> bool:
        """Run one item of a random queue, and return whether any could run."""
        queues = list(self._busy)
        random.shuffle(queues)
        self._running_thread = threading.get_ident()
        try:
            for queue in queues:
                if self._try_run(queue.pending[0]):
                    queue.pending.popleft()
                    if not queue.pending:
                        del self._busy[queue]
                    return True
        finally:
            self._running_thread = None
        return False

    def _run_queue(self, queue: WorkQueue) -> bool:
        """Run everything that can run in one queue, and return whether anything did."""
        progress = False
        while queue.pending and self._try_run(queue.pending[0]):
            queue.pending.popleft()
            progress = True
        if not queue.pending:
            self._busy.pop(queue, None)
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
            f"{queue.name} waits for {queue.pending[0].what} with {len(queue.pending) - 1} "
            "more behind it"
            for queue in self._busy
        ]
        for queue in self._busy:
            queue.pending.clear()
        self._busy.clear()
        return DeadlockError(
            f"synchronising {subject}: nothing can signal what the streams wait for: "
            f"{'; '.join(waits)}; record each external event once for each replay; the pending "
            "work was dropped"
        )


def device_failure(code: int, text: str) -> RuntimeError:
    """Return a failure in the form of torch_npu's reports."""
    return RuntimeError(f"FakeDevice: {text}, error code is {code}")
