"""Failures on purpose: the simulated device refuses or fails what it would have done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cann_sim.errors import SettingError
from cann_sim.simulated_device.runtime_library import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def set_faults(faults: str) -> None:
    """Choose what fails from now on, and count from 1 again.

    Args:
        faults: ``<kind>:<count>`` parts with commas between them; empty for none. A count is the
            occasion that fails, ``3``, a range of them, ``3-5``, or all from one on, ``3+``. The
            kinds, and what the device answers:

            - ``allocation``: device memory, 207001
            - ``stream``: making a stream, 207008
            - ``launch``, ``launch(aclnnAdd)``: giving a kernel to a stream, 507899
            - ``run``, ``run(aclnnAdd)``: a kernel while it runs, 507015, in a replay 507011
            - ``capture_end``: the end of a capture, 507903
            - ``task_update``: a kernel launched in a task update, 507000
            - ``two_kernels``, ``two_kernels(<operator>)``: does not fail, but makes a launch two
              kernels instead of one; a task update that meets another number of them than the
              capture is 507000

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The text is of another form. The faults are as before.
    """
    wrong = read_text("cann_sim_set_faults", "to set its faults", faults.encode())
    if wrong:
        raise SettingError(f"setting the faults of the simulated device: {wrong}")


@contextmanager
def injected_faults(faults: str) -> Iterator[None]:
    """Let the device fail as `set_faults` says in the block; afterwards nothing fails.

    Args:
        faults: As for `set_faults`.

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The text is of another form.
    """
    set_faults(faults)
    try:
        yield
    finally:
        set_faults("")
