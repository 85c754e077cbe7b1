"""The worker thread of an update lane: it issues updates while the caller goes on."""

from __future__ import annotations

import atexit
import functools
import queue
import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_update.task_device import find_thread_binding

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.recording.record import KeyRecords
    from attn_update.task_device import TaskDevice


# A device that hangs must not keep the process.
_SECONDS_AT_EXIT = 30.0


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

    When the process ends, the tasks that it has are run first.

    Args:
        device: The thread is bound to it where it has to be.

    Raises:
        Exception: What binding the thread raised.
    """

    def __init__(self, device: TaskDevice) -> None:
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._failures: list[FailedTask] = []
        bound: Future[None] = Future()
        arguments = (device, bound, self._tasks, self._failures)
        self._thread = threading.Thread(
            target=_work, args=arguments, name="attn-update", daemon=True
        )
        self._stop = weakref.finalize(self, self._tasks.put, None)
        self._thread.start()
        bound.result()

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


def _work(
    device: TaskDevice,
    bound: Future[None],
    tasks: queue.Queue[_Task | None],
    failures: list[FailedTask],
) -> None:
    try:
        bind = find_thread_binding(device)
        if bind is not None:
            bind()
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        bound.set_exception(error)
        return
    # Before the device is taken down: what was registered last is called first.
    end = functools.partial(_end, tasks, threading.current_thread())
    atexit.register(end)
    bound.set_result(None)
    del bound
    while (task := tasks.get()) is not None:
        try:
            task.run()
        except BaseException as error:  # noqa: BLE001, PERF203 - raised in the caller
            failures.append(FailedTask(records=task.records, error=error))
        finally:
            del task
            tasks.task_done()
    atexit.unregister(end)


def _end(tasks: queue.Queue[_Task | None], thread: threading.Thread) -> None:
    tasks.put(None)
    thread.join(timeout=_SECONDS_AT_EXIT)
