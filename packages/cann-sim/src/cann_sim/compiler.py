"""The C++ compiler: found, asked for its version, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.errors import CompilationError, CompilerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler that understands the command line of g++.

    Attributes:
        path: The program.
        version: What it answers to ``-dumpfullversion -dumpversion``.
    """

    path: str
    version: str

    def run(self, arguments: Sequence[str], purpose: str) -> None:
        """Run the compiler.

        Args:
            arguments: Its command line, without the program.
            purpose: What is made, for the error message.

        Raises:
            CompilationError: It failed; the message has the command and the output.
        """
        command = [self.path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompilationError(
                f"cann-sim was {purpose}: {self.path} {self.version} ended with status "
                f"{done.returncode}. Command: {' '.join(command)}\n{done.stdout}{done.stderr}"
            )


def find_compiler() -> Compiler:
    """Find the compiler: ``$CXX``, or else ``g++`` on the path.

    Raises:
        CompilerNotFoundError: There is none, or it does not answer.
    """
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise CompilerNotFoundError(
            f"cann-sim has to build its native libraries: expected the C++ compiler '{name}' on "
            "the path, found none. Install it (Debian and Ubuntu: apt-get install g++), or set "
            "CXX to the compiler to use."
        )
    command = [path, "-dumpfullversion", "-dumpversion"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerNotFoundError(
            f"cann-sim asked the C++ compiler {path} for its version: expected an answer, found "
            f"{error}. Set CXX to a compiler that works."
        ) from error
    return Compiler(path=str(Path(path)), version=done.stdout.strip())
