"""Other programs are run here; one that fails ends the release with its output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from release.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def output_of(
    *command: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program and return its output.

    Args:
        command: The program and its arguments.
        folder: Where it is run.
        environment: Variables in addition to those of this process.

    Raises:
        ReleaseError: It failed; the message contains the last lines that it wrote.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-40:])
        raise ReleaseError(
            f"`{shlex.join(words)}` in {folder} ended with {done.returncode}:\n{said}"
        )
    return done.stdout


def show(*command: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a program that writes to this process's output while it runs.

    Raises:
        ReleaseError: It failed.
    """
    words = [str(word) for word in command]
    sys.stdout.flush()
    done = subprocess.run(words, cwd=folder, env={**os.environ, **(environment or {})}, check=False)
    if done.returncode:
        raise ReleaseError(
            f"`{shlex.join(words)}` in {folder} ended with {done.returncode}; its output is above"
        )


def git(root: Path, *arguments: str) -> str:
    """Run git in a checkout and return its output without the last line break.

    Raises:
        ReleaseError: git failed.
    """
    return output_of("git", *arguments, folder=root).rstrip("\n")


def is_revision(root: Path, name: str) -> bool:
    """Return whether git knows a revision of that name."""
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0
