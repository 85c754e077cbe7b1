"""The worker thread of an update lane, which launches updates while the caller continues."""

from __future__ import annotations

import atexit
import functools
import queue
import threading
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from attn_update.task_device import bind_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.lane.replay_state import ReplayState
    from attn_update.task_device import TaskDevice

Task: TypeAlias = "tuple[ReplayState, Callable[[Any], None], Any]"
"""The state of the graph that it is for, what to call, and its argument."""

# An event is set when the thread comes to it; None ends the thread.
_Tasks: TypeAlias = "queue.SimpleQueue[Task | threading.Event | None]"

# A device that hangs must not keep the process.
_SECONDS_AT_EXIT = 30.0

_SECONDS_BETWEEN_LOOKS = 0.1


class FailedTask(NamedTuple):
    """The state of the graph that a failed task was for, and its exception."""

    state: ReplayState
    error: BaseException


class UpdateWorker:
    """One thread that runs tasks in order. It ends with `close`, or when its owner is collected.

    When the process ends, pending tasks run first.

    Attributes:
        submit: Queues a task. It is one C call, so an exception of a signal handler comes before or
            after it, and never leaves half a task.

    Raises:
        Exception: Any error of binding the thread.
    """

    def __init__(self, device: TaskDevice) -> None:
        tasks: _Tasks = queue.SimpleQueue()
        self.submit: Callable[[Task], None] = tasks.put
        self._tasks = tasks
        self._failures: list[FailedTask] = []
        bound: Future[None] = Future()
        arguments = (device, bound, self._tasks, self._failures)
        self._thread = threading.Thread(
            target=_work, args=arguments, name="attn-update", daemon=True
        )
        self._stop = weakref.finalize(self, self._tasks.put, None)
        self._thread.start()
        bound.result()

    def drain(self) -> None:
        """Wait until the thread has run all tasks; the device may still be busy with them."""
        drained = threading.Event()
        self._tasks.put(drained)
        while not drained.wait(_SECONDS_BETWEEN_LOOKS):
            if not self._thread.is_alive():
                return

    def close(self) -> None:
        """Wait until the thread has run all tasks and has ended."""
        self._stop()
        self._thread.join()

    @property
    def failures(self) -> list[FailedTask]:
        """Failures that were not forgotten, in order; a copy."""
        return list(self._failures)

    def forget_failures(self, count: int) -> None:
        """Forget the first failures; the thread may add one at any time."""
        del self._failures[:count]


def _work(
    device: TaskDevice,
    bound: Future[None],
    tasks: _Tasks,
    failures: list[FailedTask],
) -> None:
    try:
        bind_thread(device)
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        bound.set_exception(error)
        return
    # Before the device is taken down: what was registered last is called first.
    end = functools.partial(_end, tasks, threading.current_thread())
    atexit.register(end)
    bound.set_result(None)
    del bound
    while (task := tasks.get()) is not None:
        if isinstance(task, threading.Event):
            task.set()
            continue
        state, call, argument = task
        try:
            call(argument)
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            failures.append(FailedTask(state, error))
        finally:
            del task, state, call, argument
    atexit.unregister(end)


def _end(tasks: _Tasks, thread: threading.Thread) -> None:
    tasks.put(None)
    thread.join(timeout=_SECONDS_AT_EXIT)
