"""The C++ compiler: finds it, asks for its version, and runs it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.building.build_cache import cache_error
from cann_sim.errors import CompilationError, CompilerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler with the command line of g++.

    Attributes:
        path: The program.
        version: Its output for ``-dumpfullversion -dumpversion``, and its target,
            for instance ``12.2.0 x86_64-linux-gnu``: a cache may be shared between machines.
    """

    path: str
    version: str

    def run(self, arguments: Sequence[str], purpose: str) -> None:
        """Run the compiler.

        Args:
            arguments: Its command line, without the program.
            purpose: What is built, for the error message.

        Raises:
            CompilationError: It failed; the message has the command and the output.
            CacheError: There was no room for its output.
        """
        command = [self.path, *arguments]
        # What it says is looked at below.
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            full = os.strerror(errno.ENOSPC)
            if full in done.stderr:
                places = f"the folder of built files or in {tempfile.gettempdir()}"
                raise cache_error(OSError(errno.ENOSPC, f"{full} in {places}"), purpose)
            raise CompilationError(
                f"cann-sim was {purpose}: {self.path} {self.version} ended with status "
                f"{done.returncode}. Command: {' '.join(command)}\n{done.stdout}{done.stderr}"
            )

    def require(self, standard: str) -> None:
        """See whether it can compile a source.

        Args:
            standard: A C++ standard, for instance ``c++20``.

        Raises:
            CompilerNotFoundError: It cannot.
        """
        command = [self.path, f"-std={standard}", "-fsyntax-only", "-x", "c++", "-"]
        probe = "#include <string>\nstd::string text;\n"
        done = subprocess.run(command, input=probe, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompilerNotFoundError(
                f"cann-sim has to build its native libraries: expected a compiler of {standard} "
                f"with its standard library (g++ 11 or later has both), found {self.path} "
                f"{self.version}: {done.stderr.strip().splitlines()[-1:] or ['no reason']}. "
                "Install a newer one, or set CXX to it."
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
    try:
        answers = [
            subprocess.run([path, *question], capture_output=True, text=True, check=True).stdout
            for question in (("-dumpfullversion", "-dumpversion"), ("-dumpmachine",))
        ]
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerNotFoundError(
            f"cann-sim asked the C++ compiler {path} for its version: expected an answer, found "
            f"{error}. Set CXX to a compiler that works."
        ) from error
    return Compiler(path=str(Path(path)), version=" ".join(text.strip() for text in answers))
