"""How the process of a probe is started, and what is asked of it then."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CHILD = "npu_graph_check.child"


class Running(Protocol):
    """A process that has started, the leader of its own session."""

    @property
    def pid(self) -> int:
        """Return its number."""

    def wait(self, seconds: float | None) -> int | None:
        """Wait until it has ended; None if it has not within this time.

        Returns:
            The exit status, or the negated number of the signal that ended it.
        """


class Start(Protocol):
    """Starts the process of a probe."""

    def __call__(self, arguments: Sequence[str], folder: Path, errors: Path) -> Running:
        """Start it.

        Args:
            arguments: of ``npu_graph_check.child``.
            folder: where it runs.
            errors: file that takes what it writes to its standard streams.
        """


class NewInterpreter:
    """Starts each process as a new interpreter: it shares nothing, but imports take seconds.

    Args:
        command: what runs a probe, without its arguments.
        environment: all variables of the process.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        command: Sequence[str] = (sys.executable, "-m", CHILD),
    ) -> None:
        self._environment = environment
        self._command = command

    def __call__(self, arguments: Sequence[str], folder: Path, errors: Path) -> Running:
        """Start a process."""
        with errors.open("wb") as stream:
            # A session of its own: an interrupt of the terminal reaches this process alone, which
            # ends the probe with all that it started.
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=probe_variables(self._environment),
                cwd=folder,
                start_new_session=True,
            )
        return _Process(process)


class _Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float | None) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def probe_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that runs a probe."""
    # The probes that need torch_npu import it themselves; `import torch` alone would fail where
    # it does not load, and say less. What a library writes to a console must not be kept back.
    added = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONUNBUFFERED": "1"}
    if variables.get("PYTHONPATH"):
        # It runs in another folder, as `python -m` would import from that of the user.
        paths = variables["PYTHONPATH"].split(os.pathsep)
        added["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in paths)  # noqa: PTH100
    return {**variables, **added}
