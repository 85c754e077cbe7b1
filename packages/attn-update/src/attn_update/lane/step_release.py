"""Releases a graph that a step left waiting, on a thread that no signal handler interrupts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.task_device import bind_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update.task_device import TaskDevice

_SECONDS_BETWEEN_LOOKS = 0.0005


@dataclass(slots=True, kw_only=True)
class StepRelease:
    """Progress of a release.

    Attributes:
        is_begun: Whether its thread was started, or is just about to be.
        is_done: Whether it has ended.
        error: Its exception.
    """

    is_begun: bool = False
    is_done: bool = False
    error: BaseException | None = None

    def wait(self) -> None:
        """Wait until it is done, if it was begun. An interrupt ends the wait but not the release.

        Raises:
            BaseException: The exception of the release.
        """
        while self.is_begun and not self.is_done:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if self.error is not None:
            raise self.error


def release_alone(
    release: StepRelease, device: TaskDevice, call: Callable[..., None], *arguments: Any
) -> None:
    """Release the graph; run it in a separate thread, because signal handlers run on the first."""
    try:
        bind_thread(device)
        call(*arguments)
    except BaseException as error:  # noqa: BLE001 - raised by `StepRelease.wait`
        release.error = error
    finally:
        release.is_done = True
