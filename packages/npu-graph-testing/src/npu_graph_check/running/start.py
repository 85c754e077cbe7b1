"""How the process of a probe is started, and what is asked of it then."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    # Starts the process of a probe, given the arguments of `CHILD`, the folder where it runs, and
    # the file that takes what it writes to its standard streams.
    Start: TypeAlias = Callable[[Sequence[str], Path, Path], "Running"]

CHILD = "npu_graph_check.child"


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """A process that has started, the leader of its own session.

    Attributes:
        pid: its number.
        wait: waits until it has ended, at most so many seconds, and returns the exit status, or the
            negated number of the signal that ended it; None if it has not ended.
    """

    pid: int
    wait: Callable[[float | None], int | None]


class NewInterpreter:
    """Starts each process as a new interpreter: it shares nothing, but imports take seconds."""

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

        def wait(seconds: float | None) -> int | None:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None

        return Running(process.pid, wait)


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
