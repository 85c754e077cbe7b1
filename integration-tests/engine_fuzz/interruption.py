"""Real signals whose handler raises, at a moment that nobody chose."""

from __future__ import annotations

import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Result = TypeVar("_Result")


class Interruption(Exception):  # noqa: N818 - what an engine's handler raises
    """Raised by a signal handler, as engines do to give a request up."""


INTERRUPTS: Mapping[str, type[BaseException]] = MappingProxyType(
    {"KeyboardInterrupt": KeyboardInterrupt, "Interruption": Interruption}
)


def call_interrupted(
    function: Callable[[], _Result], *, seconds: float, name: str
) -> _Result | None:
    """Call a function and meanwhile send this process a signal whose handler raises.

    Args:
        function: the function to call.
        seconds: time until the signal.
        name: a name in `INTERRUPTS`.

    Returns:
        The result of the function; ``None`` if the exception of the handler ended it.
    """
    kind = INTERRUPTS[name]
    is_armed = True

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise kind

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return function()
        finally:
            # A signal before this statement interrupted the function.
            is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
    except kind:
        return None
