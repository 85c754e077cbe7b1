"""Environments of the sessions: made by uv, holding what was asked for and nothing else."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import nox

    from sessions.package import Package
    from sessions.torch_release import TorchRelease


@dataclass(frozen=True, kw_only=True)
class Installer:
    """Makes environments and wheels for one session.

    uv links every wheel from its cache into the environments, so torch is stored once,
    and an environment still has only its own requirements.

    Attributes:
        session: The session that commands are run in.
        uv: The program.
        settings: Environment variables for uv.
    """

    session: nox.Session
    uv: str
    settings: Mapping[str, str]

    def environment(
        self,
        name: str,
        requirements: Iterable[str],
        *,
        release: TorchRelease | None = None,
        python: str,
        editable: Iterable[Package] = (),
        overrides: Iterable[str] = (),
        compiled: bool = False,
    ) -> str:
        """Make or update an environment, and return its Python.

        Does nothing if the last call had the same arguments.

        Args:
            name: Folder below ``.nox``.
            requirements: Requirements and paths of wheels.
            release: The versions of torch and torch_npu, for those that a requirement names.
            python: Version or path of the interpreter.
            editable: Packages whose sources in the tree are imported.
            overrides: Further requirements that replace all others of the same name; one
                whose marker never holds is left out.
            compiled: With bytecode, which uv does not write: a program of very many modules starts
                several times faster.
        """
        folder = ROOT / ".nox" / name
        interpreter = str(folder / "bin" / "python")
        editable = list(editable)
        arguments = [
            *sorted(requirements),
            *[text for package in editable for text in ("-e", str(package.folder))],
        ]
        exact = [*([] if release is None else release.requirements), *overrides]
        metadata = [(package.folder / "pyproject.toml").read_text() for package in editable]
        text = repr((arguments, exact, metadata, compiled, sorted(self.settings.items())))
        made_for = f"{python} "
        wanted = made_for + hashlib.sha256(text.encode()).hexdigest()
        mark = folder / "wanted"
        found = mark.read_text() if mark.exists() else ""
        if found == wanted:
            return interpreter
        if not found.startswith(made_for):
            self._run("venv", "--quiet", "--clear", "--python", python, str(folder))
        mark.write_text(made_for)  # what follows may be interrupted
        options = ["--exact", "--python", interpreter]
        if compiled:
            options.append("--compile-bytecode")
        if exact:
            file = folder / "overrides.txt"
            file.write_text("\n".join(exact))
            options += ["--overrides", str(file)]
        self._run("pip", "install", *options, *arguments)
        mark.write_text(wanted)
        return interpreter

    def having(self, settings: Mapping[str, str]) -> Installer:
        """Return an installer with further environment variables for uv."""
        return replace(self, settings={**self.settings, **settings})

    def unpack(self, folder: Path, requirements: Iterable[str], *, platform: str) -> None:
        """Unpack wheels for another processor into a folder, without their dependencies.

        Args:
            folder: Nothing is done if it exists.
            requirements: Exact versions.
            platform: For instance ``aarch64-manylinux_2_28``.
        """
        if folder.exists():
            return
        partial = folder.with_name(f"{folder.name}-partial")
        shutil.rmtree(partial, ignore_errors=True)
        options = ["--no-deps", "--python-platform", platform, "--target", str(partial)]
        self._run("pip", "install", *options, *requirements)
        partial.rename(folder)

    def wheel(self, package: Package) -> str:
        """Build a package's wheel, if it is not there for these sources, and return its path."""
        folder = ROOT / "build" / "wheels" / f"{package.name}-{package.content_key()}"
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self._run("build", "--quiet", "--wheel", "--out-dir", str(folder), str(package.folder))
            (folder / "done").touch()
        return str(_only_wheel(folder))

    def _run(self, *arguments: str) -> None:
        self.session.run(self.uv, *arguments, env=dict(self.settings), external=True)


def _only_wheel(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel
