"""Starts the processes of probes by forking one that has imported torch and torch_npu."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from npu_graph_check.errors import CheckError
from npu_graph_check.running.start import CHILD, Running, probe_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

_MODULE = "npu_graph_check.running.forking_process"
_IMPORT_SECONDS = 300.0
_TRIES = 2


class ForkServer:
    """Starts each process as a fork of one that has imported torch, and started no device.

    The first start takes as long as the imports, each further one some milliseconds. A server that
    has ended is started again. Used by one thread, for one process at a time; ended by `close`, or
    as a context.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._server: subprocess.Popen[bytes] | None = None
        self._is_waiting = False

    def __call__(
        self,
        arguments: Sequence[str],
        folder: Path,
        errors: Path,
        *,
        module: str = CHILD,
        variables: Mapping[str, str] | None = None,
    ) -> Running:
        """Fork a process that runs a module, by default that of a probe, see `Start`.

        Variables change the server's environment; settings that are read while torch or torch_npu
        is imported have no effect.

        Raises:
            CheckError: the server ended before it had forked a process.
        """
        request = {
            "module": module,
            "arguments": list(arguments),
            "folder": str(folder),
            "errors": str(errors),
            "environment": dict(variables or {}),
        }
        try:
            for _ in range(_TRIES):
                if self._is_waiting:
                    self.close()  # for a process that cannot be ended
                pid = self._forked(request, folder)
                if pid is not None:
                    self._is_waiting = True
                    return Running(pid, self._status)
                self.close()
        except BaseException:
            self.close()  # what it would still answer belongs to no later request
            raise
        raise CheckError(
            "starting a probe: the process that imports torch and torch_npu ended; run with "
            "--new-interpreters to see which probe it is"
        )

    def _status(self, seconds: float | None) -> int | None:
        status = self._answer("status", seconds)
        if status is None and (self._server is None or self._server.poll() is not None):
            return -signal.SIGKILL  # the probe's process ended with the server
        return status

    def _answer(self, name: str, seconds: float | None) -> int | None:
        """Return the server's answer to the last request; None if it ended, or after this time."""
        assert self._server is not None and self._server.stdout is not None  # noqa: S101, PT018
        readable, _, _ = select.select([self._server.stdout], [], [], seconds)
        line = self._server.stdout.readline() if readable else b""
        if not line:
            return None
        self._is_waiting = False
        return int(json.loads(line)[name])

    def close(self) -> None:
        """End the server, and with it the process that it has forked."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None
        self._is_waiting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forked(self, request: Mapping[str, object], folder: Path) -> int | None:
        if self._server is None:
            self._server = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=probe_variables(self._environment),
                cwd=folder,  # in that of the user a `torch.py` would be imported
                bufsize=0,  # `select` does not see what a buffer has read
                start_new_session=True,
            )
        assert self._server.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._server.stdin.write(json.dumps(request).encode() + b"\n")
        return self._answer("pid", _IMPORT_SECONDS)
