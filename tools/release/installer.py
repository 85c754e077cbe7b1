"""Empty environments, wheels and installs, all by uv."""

from __future__ import annotations

import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from release.command import output_of, show

if TYPE_CHECKING:
    from sessions.package import Package


@dataclass(frozen=True, kw_only=True)
class Installer:
    """Creates environments; ``UV_*`` variables set indexes and certificates.

    Attributes:
        uv: The program.
        python: Version or path of the interpreter for new environments.
        overrides: Versions that replace every requirement of the distribution, for instance
            ``torch==2.13.0``.
    """

    uv: str
    python: str
    overrides: tuple[str, ...] = ()

    def build(self, package: Package, into: Path) -> list[Path]:
        """Build a source distribution, and a wheel from it; return both."""
        self._run(package.folder, "build", "--quiet", "--out-dir", into, package.folder)
        return sorted(path for path in into.iterdir() if path.suffix in {".gz", ".whl"})

    def build_wheel(self, package: Package, into: Path) -> Path:
        """Build a wheel alone and return it."""
        self._run(package.folder, "build", "--quiet", "--wheel", "--out-dir", into, package.folder)
        return next(into.glob(f"{package.module}-*.whl"))

    def environment(self, folder: Path) -> Environment:
        """Create an empty environment, replacing the content of the folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._run(folder.parent, "venv", "--quiet", "--python", self.python, folder)
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(self.overrides), encoding="utf-8")
        return Environment(installer=self, folder=folder)

    def _run(self, folder: Path, *arguments: str | Path) -> str:
        return output_of(self.uv, *arguments, folder=folder)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment, which sees neither the tree nor another environment.

    Attributes:
        installer: The installer that created it.
        folder: Its folder.
    """

    installer: Installer
    folder: Path

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return Path(sysconfig.get_path("scripts", "posix_prefix", vars={"base": str(self.folder)}))

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.programs / "python"

    def install(self, *requirements: str | Path) -> str:
        """Install into it and return uv's output.

        Raises:
            ReleaseError: uv found no solution; the message contains its reason.
        """
        overrides = self.folder / "overrides.txt"
        return output_of(
            self.installer.uv,
            *("pip", "install", "--python", self.python, "--overrides", overrides),
            *requirements,
            folder=self.folder,
        )

    def run(self, *command: str | Path, folder: Path) -> str:
        """Run a program as users do, with those of this environment first; return its output.

        Raises:
            ReleaseError: It failed.
        """
        return output_of(*command, folder=folder, environment=self._variables(autoload="1"))

    def show(self, *command: str | Path, folder: Path) -> None:
        """Run tests and show their output while they run.

        With torch_npu installed but no device libraries, `import torch` would fail unless it is
        told
        not to load torch_npu. Tests that need torch_npu load it under cann-sim.

        Raises:
            ReleaseError: It failed.
        """
        show(*command, folder=folder, environment=self._variables(autoload="0"))

    def _variables(self, *, autoload: str) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "PYTHONPATH": "",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
        }
