"""Which torch and torch_npu an environment gets, and from where."""

from __future__ import annotations

import os
import sys
import urllib.request
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from nox.project import load_toml

from sessions.installer_settings import wheel_folders
from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
"""PyTorch's index of CPU builds; uv takes torch from it where UV_TORCH_BACKEND is ``cpu``."""

PROBE_SECONDS = 3


@dataclass(frozen=True, kw_only=True)
class TorchRelease:
    """One row of ``[[tool.compat.release]]`` in the repository's ``pyproject.toml``.

    Attributes:
        name: What the sessions call it, for instance ``torch-2.10``.
        torch: Version of torch.
        torch_npu: Version of torch_npu that was built for it.
        python: Version of Python that ``compat`` runs it with.
        reason: Who pins it, or why it is tried.
    """

    name: str
    torch: str
    torch_npu: str
    python: str
    reason: str

    @property
    def requirements(self) -> list[str]:
        """Exact versions, which replace every requirement on one of the two.

        torch_npu's own among them: 2.10 wants ``torch==2.10.0+cpu`` for x86-64, a build that the
        ordinary index does not have.
        """
        return [f"torch=={self.torch}", f"torch-npu=={self.torch_npu}"]


@dataclass(frozen=True, kw_only=True)
class TorchChoice:
    """A release and where its torch comes from.

    Attributes:
        release: The versions.
        settings: Further environment variables for uv.
        source: Description for the user.
    """

    release: TorchRelease
    settings: dict[str, str]
    source: str


def releases() -> list[TorchRelease]:
    """Return the supported releases, the oldest first."""
    return [TorchRelease(**row) for row in _table()["release"]]


def release_share() -> dict[str, list[str]]:
    """Return, by package, the tests that the gate runs on the oldest and the newest release."""
    share: dict[str, list[str]] = _table()["share"]
    return share


def _table() -> dict[str, Any]:
    table: dict[str, Any] = load_toml(ROOT / "pyproject.toml")["tool"]["compat"]
    return table


def choose_torch(settings: Mapping[str, str]) -> TorchChoice:
    """Choose the torch of the gate and the demo: the newest, as a CPU build if there is one.

    A CPU build is taken from a folder of wheels in the configuration of pip or uv, in any supported
    version; otherwise from PyTorch's own index, if it answers. The default index has CUDA
    builds for x86-64, which also work but are gigabytes larger.

    Args:
        settings: Environment variables for uv.
    """
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    folders = wheel_folders(settings)
    supported = releases()
    for release in reversed(supported):
        pattern = f"torch-{release.torch}+cpu-{tag}-*{os.uname().machine}.whl"
        if any(path for folder in folders for path in folder.glob(pattern)):
            return TorchChoice(
                release=release, settings={}, source="the CPU build in a folder of wheels"
            )
    newest = supported[-1]
    if "UV_TORCH_BACKEND" in os.environ:
        backend = os.environ["UV_TORCH_BACKEND"]
        return TorchChoice(release=newest, settings={}, source=f"UV_TORCH_BACKEND={backend}")
    if _cpu_index_answers():
        return TorchChoice(
            release=newest,
            settings={"UV_TORCH_BACKEND": "cpu"},
            source="the CPU build on PyTorch's index",
        )
    return TorchChoice(release=newest, settings={}, source="the index's own build")


@cache
def _cpu_index_answers() -> bool:
    request = urllib.request.Request(CPU_INDEX, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS):
            return True
    except (OSError, ValueError):
        return False
