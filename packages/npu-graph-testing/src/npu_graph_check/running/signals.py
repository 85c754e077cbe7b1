"""Signals that end a run."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs here as an interrupt does.

    The first signal raises ``KeyboardInterrupt``, further ones are ignored: what they would end is
    the writing of the results. The former handlers are set again at the end. Outside of the main
    thread, where Python sets no handlers, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        del number, frame
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    former = {each: signal.getsignal(each) for each in _SIGNALS}
    for each, handler in former.items():
        if handler is not signal.SIG_IGN:  # as `nohup` asks
            signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
