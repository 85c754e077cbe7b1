"""What is installed: the torch and torch_npu that the native libraries are built against."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from cann_sim.errors import InstallationError

SUPPORTED_MINOR_VERSIONS = ("2.13",)
"""Minor versions of torch_npu whose calls the native libraries answer."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The torch and the torch_npu of this Python.

    Attributes:
        torch_version: Version of torch with its local part, for instance ``2.13.0+cpu``.
        torch_folder: Folder of the ``torch`` package.
        torch_npu_version: Version of torch_npu.
        torch_npu_folder: Folder of the ``torch_npu`` package.
    """

    torch_version: str
    torch_folder: Path
    torch_npu_version: str
    torch_npu_folder: Path


def find_installation() -> Installation:
    """Find torch and torch_npu without importing them.

    Raises:
        InstallationError: One of them is missing, their minor versions differ, or torch_npu has a
            version that is not in ``SUPPORTED_MINOR_VERSIONS``.
    """
    torch_version, torch_folder = _find("torch", "pip install torch")
    npu_version, npu_folder = _find("torch_npu", "pip install 'cann-sim[npu]'")
    if _minor(npu_version) not in SUPPORTED_MINOR_VERSIONS:
        expected = " or ".join(SUPPORTED_MINOR_VERSIONS)
        raise InstallationError(
            f"cann-sim looked at the installed torch_npu: expected version {expected}, found "
            f"{npu_version}. Install it with: pip install 'cann-sim[npu]'"
        )
    if _minor(torch_version) != _minor(npu_version):
        raise InstallationError(
            f"cann-sim compared torch and torch_npu: expected torch {_minor(npu_version)} for "
            f"torch_npu {npu_version}, found torch {torch_version}. Install the torch that "
            f"torch_npu was built for: pip install 'torch=={_release(npu_version)}'"
        )
    return Installation(
        torch_version=torch_version,
        torch_folder=torch_folder,
        torch_npu_version=npu_version,
        torch_npu_folder=npu_folder,
    )


def _find(package: str, remedy: str) -> tuple[str, Path]:
    """Return the version and the folder of an installed package."""
    spec = importlib.util.find_spec(package)
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if spec is None or spec.origin is None or not version:
        raise InstallationError(
            f"cann-sim looked for {package}: expected it to be installed, found nothing. "
            f"Install it with: {remedy}"
        )
    return version, Path(spec.origin).parent


def _release(version: str) -> str:
    """Return the version without its local part and without a post release."""
    return version.split("+", maxsplit=1)[0].split(".post", maxsplit=1)[0]


def _minor(version: str) -> str:
    """Return major and minor version, for instance ``2.13``."""
    return ".".join(version.split(".")[:2])
