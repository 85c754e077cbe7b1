"""Sleeps that may end late."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: it cannot be undone for this one's later children.
PROGRAM = """
import subprocess
from sessions.testing.timer_slack import let_sleeps_end_late
let_sleeps_end_late()
print(subprocess.run(["cat", "/proc/self/timerslack_ns"], capture_output=True, text=True).stdout)
"""


def test_programs_that_are_started_inherit_late_sleeps() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "4000000"
    assert done.stderr == ""
