"""The order in which the streams of the simulated device go on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cann_sim.errors import SettingError
from cann_sim.simulated_device.runtime_library import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def schedule() -> str:
    """Return the schedule of the device: ``"free"`` or ``"fuzz:<seed>"``.

    Raises:
        InactiveError: The simulator is not loaded in this process.
    """
    return read_text("cann_sim_schedule", "for its schedule")


def set_schedule(chosen: str) -> None:
    """Choose the schedule of the device.

    Args:
        chosen: ``"free"``: streams run beside each other as the operating system likes.
            ``"fuzz:<seed>"``: one task at a time, and the seed decides which stream runs its next
            task and how many run before the next call of the host returns. Setting it begins the
            sequence of the seed anew, so that the same calls of one host thread are interleaved in
            the same way again. The device has to be idle.

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The text is neither, or the device is not idle.
    """
    wrong = read_text("cann_sim_set_schedule", "to set its schedule", chosen.encode())
    if wrong:
        raise SettingError(f"setting the schedule of the simulated device: {wrong}")


@contextmanager
def fuzzed_schedule(seed: int) -> Iterator[None]:
    """Run the block under ``fuzz:<seed>`` and go back to the schedule before it.

    Args:
        seed: 0 or above. The device has to be idle at both ends of the block.

    Raises:
        InactiveError: The simulator is not loaded in this process.
        SettingError: The seed is negative, or the device is not idle.
    """
    before = schedule()
    set_schedule(f"fuzz:{seed}")
    try:
        yield
    finally:
        set_schedule(before)
