"""A checkout of one of CANN's operator repositories."""

from __future__ import annotations

import re
import subprocess
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_DEFINITION: Final = re.compile(r"(aclnn\w+)GetWorkspaceSize *\(")


class Repository:
    """Documents and sources at the checked-out commit; read by git, so a bare clone works too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self._folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @cached_property
    def commit(self) -> str:
        """The commit that is checked out."""
        return self._git("rev-parse", "HEAD").strip()

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self._git("show", f"HEAD:{path}")

    @cached_property
    def _files(self) -> tuple[str, ...]:
        listed = self._git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
        return tuple(path for path in listed if not path.startswith("experimental/"))

    @cached_property
    def documents(self) -> dict[str, str]:
        """The path of the document of each operator; one document may describe several."""
        found: dict[str, str] = {}
        for path in self._files:
            name = PurePosixPath(path).name
            if name.startswith("aclnn") and name.endswith(".md"):
                for operator in re.findall(r"aclnn\w+", name.removesuffix(".md")):
                    found.setdefault(operator, path)
        return found

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        lines = self._git(
            "grep", "-o", "-E", r"aclnn\w+GetWorkspaceSize *\(", "HEAD", "--", "*.cpp"
        )
        found: dict[str, list[str]] = {}
        for line in lines.splitlines():
            _, path, text = line.split(":", 2)
            name = _DEFINITION.search(text)
            if name and not re.search(r"(^experimental|/tests|/examples|/test)", path):
                found.setdefault(name[1], []).append(path)
        return found

    def sources(self, operator: str) -> str:
        """Return the C++ sources in which the operator's first function is defined or called."""
        return "\n".join(map(self.read, dict.fromkeys(self._sources.get(operator, ()))))

    def definitions(self, operator: str) -> str:
        """Return the definitions of the kernels next to the operator's document."""
        folder = str(PurePosixPath(self.documents[operator]).parent.parent)
        paths = [p for p in self._files if p.startswith(folder + "/") and p.endswith("_def.cpp")]
        return "\n".join(map(self.read, paths))
