"""The versions of torch_npu that can be simulated, and their differences for the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cann_sim.errors import InstallationError


@dataclass(frozen=True, kw_only=True)
class SupportedVersion:
    """A minor version of torch_npu, which needs the same minor version of torch.

    Attributes:
        minor: For instance ``2.13``.
        declares_conditional_tasks: Whether its CANN headers declare conditional tasks of graphs
            (``aclmdlRICondHandleCreate`` and related functions), and it uses them.
    """

    minor: str
    declares_conditional_tasks: bool = True


SUPPORTED_VERSIONS: Final = (
    SupportedVersion(minor="2.10", declares_conditional_tasks=False),
    SupportedVersion(minor="2.11", declares_conditional_tasks=False),
    SupportedVersion(minor="2.12"),
    SupportedVersion(minor="2.13"),
    SupportedVersion(minor="2.14"),
)
"""From the oldest to the newest."""


def supported_version(torch_npu_version: str) -> SupportedVersion:
    """Return the description of an installed torch_npu.

    Args:
        torch_npu_version: For instance ``2.10.0.post4``.

    Raises:
        InstallationError: Its minor version is not in ``SUPPORTED_VERSIONS``.
    """
    for supported in SUPPORTED_VERSIONS:
        if supported.minor == minor_version(torch_npu_version):
            return supported
    oldest, newest = SUPPORTED_VERSIONS[0].minor, SUPPORTED_VERSIONS[-1].minor
    raise InstallationError(
        f"cann-sim looked at the installed torch_npu: expected a version from {oldest} to "
        f"{newest}, found {torch_npu_version}. Install one: pip install 'torch_npu=={newest}.*'"
    )


def minor_version(version: str) -> str:
    """Return major and minor of a version, for instance ``2.13`` of ``2.13.0.post2+cpu``."""
    return ".".join(version.split(".")[:2])
