"""Chooses the issuer of an update lane from the caller's choice and the device's features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from attn_update.errors import LaneError, nearest
from attn_update.issuing.addressed_issuer import AddressedIssuer
from attn_update.issuing.kernels.kernel_updater import KernelUpdater
from attn_update.issuing.native.native_updater import NativeUpdater, find_native_updater
from attn_update.issuing.operator_issuer import OperatorIssuer
from attn_update.task_device import find_direct_launch, find_native_calls

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


class ChosenIssuer(NamedTuple):
    """An issuer, and the reason for its choice.

    Attributes:
        issuer: The issuer, on a stream of its own.
        updater: The updater it uses.
        reason: Why it uses that updater.
    """

    issuer: OperatorIssuer
    updater: UpdaterName | Updater
    reason: str


def choose_issuer(
    device: TaskDevice,
    *,
    updater: UpdaterChoice | Updater,
    native_folder: str | PathLike[str] | None = None,
) -> ChosenIssuer:
    """Return an issuer on a new stream of a device.

    Args:
        device: Device of the stream.
        updater: The updater to use; an `Updater` object is used as it is.
        native_folder: Folder of built files of the native updater; by default that of its build.

    Raises:
        LaneError: The device does not support the choice, or there is no such choice.
        NativeUnavailableError: ``native`` was chosen and cannot be built here.
    """
    if isinstance(updater, str) and updater not in _CHOICES:
        raise LaneError(
            f"making an update lane: there is no updater {updater!r}; {nearest(updater, _CHOICES)}"
        )
    direct_device = find_direct_launch(device)
    found = find_native_calls(device)
    missing = None
    if direct_device is None:
        missing = "the lane's stream does not launch directly"
    elif found is None:
        missing = "the device does not tell the addresses of its calls"
    if updater not in ("auto", "operators") and missing is not None:
        raise LaneError(
            f"making an update lane with updater={updater!r}: {missing}; leave the choice to "
            f"updater='auto'"
        )
    folder = None if native_folder is None else Path(native_folder)
    made, name, reason = _make_updater(updater, missing, folder)
    if direct_device is None:
        # A graph that waits for its first update idles the device, so the lane goes first.
        stream = device.create_stream(priority=-1)
    else:
        stream = direct_device.create_direct_stream()
    if made is None or found is None or direct_device is None:
        operators = OperatorIssuer(device, stream, direct_device)
        return ChosenIssuer(operators, "operators", reason)
    addressed, calls = found
    issuer = AddressedIssuer(
        device,
        stream,
        direct_device,
        addressed=addressed,
        calls=calls,
        updater=made,
    )
    return ChosenIssuer(issuer, name, reason)


def _make_updater(
    choice: UpdaterChoice | Updater, missing: str | None, folder: Path | None
) -> tuple[Updater | None, UpdaterName | Updater, str]:
    if choice == "auto":
        return _make_automatically(missing, folder)
    reason = "the caller chose it"
    if choice == "native":
        return NativeUpdater.load(folder), choice, reason
    if choice == "kernels":
        return KernelUpdater(), choice, reason
    if choice == "operators":
        return None, choice, reason
    return choice, choice, reason


def _make_automatically(
    missing: str | None, folder: Path | None
) -> tuple[Updater | None, UpdaterName, str]:
    if missing is not None:
        return None, "operators", f"chosen automatically: {missing}"
    native = find_native_updater(folder)
    if native.updater is None:
        return KernelUpdater(), "kernels", f"chosen automatically: {native.reason}"
    return native.updater, "native", "chosen automatically: it is the fastest, and works here"
