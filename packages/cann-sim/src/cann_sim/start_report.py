"""Reports the state of an installation, and problems that would prevent a start."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_sim.__about__ import __version__
from cann_sim.building.build_cache import cache_folder, require_writable
from cann_sim.building.compiler import Compiler, find_compiler
from cann_sim.building.native_build import cached_build
from cann_sim.building.native_library import STANDARD
from cann_sim.errors import CacheError, CompilerNotFoundError, InstallationError, SettingError
from cann_sim.inventory.installation import Installation, find_installation
from cann_sim.settings import check_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class StartReport:
    """Installed, built and selected components.

    Attributes:
        lines: Names and values, in display order.
        problems: Problems that would prevent a start; empty if there are none.
    """

    lines: Mapping[str, str]
    problems: tuple[str, ...]

    def text(self) -> str:
        """Return it as lines of text."""
        problems = {"problems": "\n".join(self.problems) or "none"}
        indent = "\n" + " " * 17
        return "".join(
            f"{name + ':':17}{value.replace(chr(10), indent)}\n"
            for name, value in {**self.lines, **problems}.items()
        )


def start_report() -> StartReport:
    """Look at all that a start needs; nothing is built, and torch is not imported."""
    problems: list[str] = []
    try:
        check_settings(os.environ)
    except SettingError as error:
        problems.append(str(error))
    installation: Installation | None = None
    built: Path | None = None
    try:
        installation = find_installation()
        built = cached_build()
    except InstallationError as error:
        problems.append(str(error))
    compiler = _compiler(problems, needed=built is None)
    if built is None:
        try:
            require_writable()
        except CacheError as error:
            problems.append(str(error))
    settings = {name: value for name, value in os.environ.items() if name.startswith("CANN_SIM_")}
    lines = {
        "cann-sim": __version__,
        "Python": f"{platform.python_version()} ({sys.executable}), {platform.machine()}",
        "torch": "" if installation is None else _torch(installation),
        "torch_npu": ""
        if installation is None
        else f"{installation.torch_npu_version} ({installation.torch_npu_folder})",
        "compiler": compiler,
        "cache": f"{cache_folder()}, {'to be built' if built is None else f'built: {built.name}'}",
        "external events": os.environ.get("CANN_SIM_EXTERNAL_EVENTS") or "value",
        "settings": " ".join(f"{n}={v}" for n, v in sorted(settings.items())) or "none",
    }
    return StartReport(
        lines={name: value or "see problems" for name, value in lines.items()},
        problems=tuple(problems),
    )


def _compiler(problems: list[str], *, needed: bool) -> str:
    """Return the report on the compiler, and record its problems if it is needed."""
    try:
        compiler: Compiler = find_compiler()
        compiler.require(STANDARD)
    except CompilerNotFoundError as error:
        if needed:
            problems.append(str(error))
            return ""
        return "none that can build; an earlier build is used"
    return f"{compiler.path} {compiler.version}"


def _torch(installation: Installation) -> str:
    kind = "CPU"
    if installation.is_cuda_build:
        text = (installation.torch_folder / "version.py").read_text(encoding="utf-8")
        found = re.search(r"^cuda\b[^=]*= *'([^']+)'", text, re.MULTILINE)
        kind = f"CUDA {found.group(1)}" if found else "CUDA"
    return f"{installation.torch_version}, {kind} build ({installation.torch_folder})"
