"""How late the sleeps of tests may end, so that threads which poll cost less."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

# prctl(2): PR_SET_TIMERSLACK, and 4 ms in its unit.
_SET_TIMER_SLACK: Final = 29
_NANOSECONDS: Final = 4_000_000


def let_sleeps_end_late() -> None:
    """Allow programs started by this thread to oversleep by up to 4 ms, permanently.

    A process that uses torch_npu has a thread which looks into a queue every few microseconds, as
    far as the system lets it: 0.4 of a core, whether there is work or not. With this it is 0.02,
    and tests on two cores take two thirds of the time. Programs inherit it. Does nothing where
    there are no Linux timers. Not for anything that is timed.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_TIMER_SLACK, _NANOSECONDS, 0, 0, 0):
        print(f"sleeps end as ever: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
