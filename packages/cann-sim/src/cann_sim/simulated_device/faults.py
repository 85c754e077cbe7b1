"""Failures on purpose: the simulated device refuses or fails what it would have done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cann_sim.errors import SettingError
from cann_sim.simulated_device.runtime_library import read_text, runtime_function

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


def restart_devices() -> int:
    """Let devices work again that stopped at a failure or hang; what they had not done is dropped.

    A device stops at the first failure of a task and takes nothing any more, see the README. On
    hardware a process that sees this has to end. This does what ``aclrtDeviceTaskAbort`` does,
    behind ``torch.npu.stop_device``; what was captured before is to be captured anew.

    Returns:
        How many had stopped, or hung and had been found out by a synchronisation.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    return runtime_function("cann_sim_restart_devices", "to restart its devices")()


def untold_failure() -> str:
    """Return the failure that a device stopped at and that no call was told of; empty for none.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    return read_text("cann_sim_untold_failure", "what its devices stopped at")


@contextmanager
def injected_faults(faults: str) -> Iterator[None]:
    """Let the device fail as `set_faults` says in the block; afterwards nothing fails.

    A device that stopped at a failure in the block is restarted behind it, where some call had been
    told of the failure; else it stays as it is, and the next call is told.

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
        if not untold_failure():
            restart_devices()
