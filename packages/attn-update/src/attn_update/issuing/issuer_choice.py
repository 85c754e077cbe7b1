"""Chooses the issuer of an update lane from the caller's choice and the device's features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from attn_update.errors import LaneError, NativeUnavailableError, nearest
from attn_update.issuing.addressed_issuer import AddressedIssuer
from attn_update.issuing.kernels.kernel_updater import KernelUpdater
from attn_update.issuing.native.native_updater import NativeUpdater
from attn_update.issuing.operator_issuer import OperatorIssuer
from attn_update.task_device import AddressedDevice, DirectLaunchDevice

if TYPE_CHECKING:
    from os import PathLike

    from attn_update.issuing.updater import Updater
    from attn_update.task_device import TaskDevice

UpdaterName: TypeAlias = Literal["operators", "kernels", "native"]
UpdaterChoice: TypeAlias = Literal["auto", "operators", "kernels", "native"]
"""How a lane issues updates.

``native``: all of a step in one call of C++, any kind; built once, in some 15 s. ``kernels``: calls
of CANN's kernels from Python, without a compiler, for plans of FIA v1 and v2. ``operators``: one
call of torch after the other, on any device. ``auto``: the first of these that works here.
"""

_CHOICES: tuple[UpdaterChoice, ...] = ("auto", "operators", "kernels", "native")


def choose_issuer(
    device: TaskDevice,
    *,
    updater: UpdaterChoice | Updater,
    native_folder: str | PathLike[str] | None = None,
) -> tuple[OperatorIssuer, UpdaterName | Updater, str]:
    """Return an issuer on a new stream of a device, its updater, and why it uses that updater.

    Raises:
        LaneError: The device does not support the choice, or there is no such choice.
        NativeUnavailableError: ``native`` was chosen and cannot be built here.
    """
    if isinstance(updater, str) and updater not in _CHOICES:
        raise LaneError(
            f"making an update lane: there is no updater {updater!r}; {nearest(updater, _CHOICES)}"
        )
    direct = device if isinstance(device, DirectLaunchDevice) else None
    addressed = device if isinstance(device, AddressedDevice) else None
    calls = {} if addressed is None else addressed.native_calls()
    missing = None
    if direct is None:
        missing = "the lane's stream does not launch directly"
    elif not calls:
        missing = "the device does not tell the addresses of its calls"
    if updater not in ("auto", "operators") and missing is not None:
        raise LaneError(
            f"making an update lane with updater={updater!r}: {missing}; leave the choice to "
            f"updater='auto'"
        )
    folder = None if native_folder is None else Path(native_folder)
    made, name, reason = _make_updater(updater, missing, folder)
    if direct is None:
        # A graph that waits for its first update idles the device, so the lane goes first.
        return OperatorIssuer(device, device.create_stream(priority=-1), None), "operators", reason
    stream = direct.create_direct_stream()
    if made is None or addressed is None:
        return OperatorIssuer(device, stream, direct), "operators", reason
    issuer = AddressedIssuer(device, stream, direct, addressed=addressed, calls=calls, updater=made)
    return issuer, name, reason


def _make_updater(
    choice: UpdaterChoice | Updater, missing: str | None, folder: Path | None
) -> tuple[Updater | None, UpdaterName | Updater, str]:
    if choice == "auto" and missing is not None:
        return None, "operators", f"chosen automatically: {missing}"
    if choice == "auto":
        try:
            native = NativeUpdater.load(folder)
        except NativeUnavailableError as error:
            return KernelUpdater(), "kernels", f"chosen automatically: {error}"
        return native, "native", "chosen automatically: it is the fastest, and works here"
    made: Updater | None = None
    if choice == "native":
        made = NativeUpdater.load(folder)
    elif choice == "kernels":
        made = KernelUpdater()
    elif choice != "operators":
        made = choice
    return made, choice, "the caller chose it"
