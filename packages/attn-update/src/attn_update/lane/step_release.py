"""Release a graph that a step left waiting, on a thread that no signal handler interrupts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.task_device import find_thread_binding

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.task_device import TaskDevice

_SECONDS_BETWEEN_LOOKS = 0.0005


@dataclass(slots=True, kw_only=True)
class StepRelease:
    """How far a release is.

    Attributes:
        is_begun: Whether its thread was started, or is just about to be.
        is_done: Whether it has ended.
        error: What it raised.
    """

    is_begun: bool = False
    is_done: bool = False
    error: BaseException | None = None

    def wait(self) -> None:
        """Wait until it is done, if it was begun. An interrupt ends the wait and not the release.

        Raises:
            BaseException: What it raised.
        """
        while self.is_begun and not self.is_done:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if self.error is not None:
            raise self.error


def release_alone(
    release: StepRelease, device: TaskDevice, call: Callable[..., None], *arguments: Any
) -> None:
    """Release; to be run by a thread of its own, because Python calls signal handlers on the first.

    Args:
        release: Is noted in.
        device: The thread is bound to it where it has to be.
        call: Releases.
        arguments: Of `call`.
    """
    try:
        bind = find_thread_binding(device)
        if bind is not None:
            bind()
        call(*arguments)
    except BaseException as error:  # noqa: BLE001 - raised by `StepRelease.wait`
        release.error = error
    finally:
        release.is_done = True
