"""Fault injection: the simulated device rejects or fails chosen operations."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cann_sim.errors import SettingError
from cann_sim.simulated_device.runtime_library import read_text, runtime_function

if TYPE_CHECKING:
    from collections.abc import Iterator


def set_faults(faults: str) -> None:
    """Choose what fails from now on, and restart counting from 1.

    Args:
        faults: Comma-separated parts ``<kind>:<count>``; empty for none. A count is the
            occasion that fails, ``3``, a range, ``3-5``, or all from one on, ``3+``. The
            kinds, and the device's error codes:

            - ``allocation``: device memory, 207001
            - ``stream``: creating a stream, 207008
            - ``launch``, ``launch(aclnnAdd)``: launching a kernel, 507899
            - ``run``, ``run(aclnnAdd)``: a kernel while it runs, 507015, in a replay 507011
            - ``capture_end``: the end of a capture, 507903
            - ``task_update``: a kernel launched in a task update, 507000
            - ``two_kernels``, ``two_kernels(<operator>)``: does not fail, but a launch uses two
              kernels instead of one; a task update with another number of kernels than the
              capture fails with 507000

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The text has another form. The faults are unchanged.
    """
    wrong = read_text("cann_sim_set_faults", "to set its faults", faults.encode())
    if wrong:
        raise SettingError(f"setting the faults of the simulated device: {wrong}")


def restart_devices() -> int:
    """Restart devices that stopped at a failure or hang; their pending work is dropped.

    A device stops at the first failure of a task and accepts no more work, see the README. On
    hardware a process that sees this has to end. This does what ``aclrtDeviceTaskAbort`` does,
    which ``torch.npu.stop_device`` calls; capture graphs again afterwards.

    Returns:
        Number of devices that had stopped, or whose hang a synchronisation had detected.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    return runtime_function("cann_sim_restart_devices", "to restart its devices")()


def untold_failure() -> str:
    """Return the failure that a device stopped at and that no call has reported; empty for none.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    return read_text("cann_sim_untold_failure", "what its devices stopped at")


@contextmanager
def injected_faults(faults: str) -> Iterator[None]:
    """Inject faults as for `set_faults` in the block; afterwards nothing fails.

    A device that stopped at a failure in the block is restarted after it if a call has reported the
    failure; otherwise it stays stopped, and the next call reports the failure.

    Args:
        faults: As for `set_faults`.

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The text has another form.
    """
    set_faults(faults)
    try:
        yield
    finally:
        set_faults("")
        if not untold_failure():
            restart_devices()
