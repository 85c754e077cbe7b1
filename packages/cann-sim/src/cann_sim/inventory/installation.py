"""The installed torch and torch_npu that the native libraries are built against."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from cann_sim.errors import InstallationError
from cann_sim.inventory.supported_versions import SupportedVersion, minor_version, supported_version


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The torch and the torch_npu of this Python.

    Attributes:
        torch_version: Version of torch with its local part, for instance ``2.13.0+cpu``.
        torch_folder: Folder of the ``torch`` package.
        torch_npu_version: Version of torch_npu.
        torch_npu_folder: Folder of the ``torch_npu`` package.
        supported: What is known of this version of torch_npu.
    """

    torch_version: str
    torch_folder: Path
    torch_npu_version: str
    torch_npu_folder: Path
    supported: SupportedVersion

    @property
    def is_cuda_build(self) -> bool:
        """Whether torch is built for CUDA, as on the public index for x86-64."""
        return (self.torch_folder / "lib" / "libc10_cuda.so").exists()

    @property
    def interface_folders(self) -> tuple[Path, ...]:
        """Folders of the CANN headers that torch_npu was built against, in include order.

        Up to 2.10.0.post4 only below ``third_party``; later at the top level, and headers of the
        same names below ``third_party`` include those.
        """
        include = self.torch_npu_folder / "include"
        if (include / "acl" / "acl_rt.h").is_file():
            return (include,)
        return (include / "third_party" / "acl" / "inc", include)


def find_installation() -> Installation:
    """Find torch and torch_npu without importing them.

    Raises:
        InstallationError: One of them is missing, their minor versions differ, or torch_npu has a
            version that is not in ``SUPPORTED_VERSIONS``.
    """
    torch_version, torch_folder = _find("torch", "pip install torch")
    npu_version, npu_folder = _find("torch_npu", "pip install torch_npu numpy pyyaml")
    supported = supported_version(npu_version)
    if minor_version(torch_version) != supported.minor:
        raise InstallationError(
            f"cann-sim compared torch and torch_npu: expected torch {supported.minor} for "
            f"torch_npu {npu_version}, found torch {torch_version}. Install the torch that "
            f"torch_npu was built for: pip install 'torch=={_release(npu_version)}'"
        )
    return Installation(
        torch_version=torch_version,
        torch_folder=torch_folder,
        torch_npu_version=npu_version,
        torch_npu_folder=npu_folder,
        supported=supported,
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
