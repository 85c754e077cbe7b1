"""The worker thread of an update lane: it issues updates while the caller goes on."""

from __future__ import annotations

import queue
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.record import KeyRecords
    from attn_update.task_device import TaskDevice


@runtime_checkable
class ThreadBoundDevice(Protocol):
    """A device that a thread has to be bound to before it may launch on it."""

    def bind_thread(self) -> None:
        """Make this device the calling thread's current one."""


@dataclass(frozen=True, kw_only=True)
class FailedTask:
    """What a worker could not do.

    Attributes:
        records: Of the graph key that the task was for.
        error: What it raised.
    """

    records: KeyRecords
    error: BaseException


class UpdateWorker:
    """One thread that runs tasks in order. It ends with `close`, or when its owner is collected.

    Args:
        device: The thread is bound to it where it is a `ThreadBoundDevice`.
    """

    def __init__(self, device: TaskDevice) -> None:
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._failures: list[FailedTask] = []
        arguments = (device, self._tasks, self._failures)
        self._thread = threading.Thread(
            target=_work, args=arguments, name="attn-update", daemon=True
        )
        self._stop = weakref.finalize(self, self._tasks.put, None)
        self._thread.start()

    def submit(self, records: KeyRecords, run: Callable[[], None]) -> None:
        """Let the thread run a task after those that it has."""
        self._tasks.put(_Task(records=records, run=run))

    def drain(self) -> None:
        """Wait until the thread has run all tasks; the device may still be busy with them."""
        self._tasks.join()

    def close(self) -> None:
        """Wait until the thread has run all tasks and has ended."""
        self._stop()
        self._thread.join()

    def take_failures(self) -> list[FailedTask]:
        """Return what failed since the last call, in order."""
        # Only as many as were seen: the thread may add one at any time.
        taken = list(self._failures)
        del self._failures[: len(taken)]
        return taken


@dataclass(frozen=True, kw_only=True)
class _Task:
    records: KeyRecords
    run: Callable[[], None]


def _work(device: TaskDevice, tasks: queue.Queue[_Task | None], failures: list[FailedTask]) -> None:
    bound = False
    while (task := tasks.get()) is not None:
        try:
            if not bound and isinstance(device, ThreadBoundDevice):
                device.bind_thread()
            bound = True
            task.run()
        except BaseException as error:  # noqa: BLE001, PERF203 - raised in the caller
            failures.append(FailedTask(records=task.records, error=error))
        finally:
            del task
            tasks.task_done()
