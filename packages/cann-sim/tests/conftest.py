"""The simulated device in the process of the tests, and Python processes of their own."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import cann_sim

os.environ.setdefault("CANN_SIM_DEADLOCK_SECONDS", "5")
cann_sim.build()  # all of it, so that no test waits for an operator's library
cann_sim.activate()

import pytest  # noqa: E402
import torch_npu  # noqa: E402

pytest_plugins = "cann_sim.pytest_plugin"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=40, help="fuzzed schedules of the update protocol"
    )
    parser.addoption("--captures", type=int, default=50, help="captures of the soak")
    parser.addoption("--replays", type=int, default=500, help="replays of the soak")
    parser.addoption("--task-queues", default="0", help="TASK_QUEUE_ENABLE of the soak: 0, 1, 0,1")
    parser.addoption(
        "--sanitizers", default="none", help="none, address, thread; with commas between them"
    )


def pytest_configure(config: pytest.Config) -> None:
    # torch_npu says these once, in whichever test comes first.
    config.addinivalue_line("filterwarnings", "ignore:.*32 padding size:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:.*interal format while:UserWarning")
    config.addinivalue_line(
        "markers",
        "absent_in_torch_npu(*releases, reason): what is tested does not exist in those releases",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    release = ".".join(version("torch_npu").split(".")[:2])
    for item in items:
        for mark in item.iter_markers("absent_in_torch_npu"):
            if release in mark.args:
                reason = f"torch_npu {release}: {mark.kwargs['reason']}"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def npu() -> Any:
    """Return `torch.npu`, set up as an engine sets it up."""
    torch_npu.npu.config.allow_internal_format = False
    torch_npu.npu.set_compile_mode(jit_compile=False)
    torch_npu.npu.set_device(0)
    return torch_npu.npu


@pytest.fixture(autouse=True)
def _default_stream_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the default stream current again after each test that uses the device.

    `torch.npu.graph` leaves its capture stream current where the end of a capture fails. A stream
    of torch_npu's pool, which later tests take theirs from, could then be both sides of a wait.
    """
    yield
    if "npu" in request.fixturenames:
        torch_npu.npu.set_stream(torch_npu.npu.default_stream())


class Acl:
    """The C interface of the simulated runtime: codes and messages as torch_npu gets them."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libascendcl.so")
        self.library.aclGetRecentErrMsg.restype = ctypes.c_char_p

    def __call__(self, function: str, *arguments: Any) -> int:
        """Call a function; integers are passed as addresses or 64-bit numbers."""
        wide = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments]
        code = getattr(self.library, function)(*wide)
        assert isinstance(code, int)
        return code

    def message(self) -> str:
        """Return the error message of the last failed call of this thread."""
        text = self.library.aclGetRecentErrMsg()
        return "" if text is None else text.decode()


@pytest.fixture(scope="session")
def acl(npu: Any) -> Acl:
    return Acl()


class Finished:
    """A Python process that has ended."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.output = done.stdout
        self.errors = done.stderr


class ForkedPython:
    """Runs source texts, each in a process of its own that is forked from one server."""

    def __init__(self) -> None:
        """Start the server; it imports while the caller continues."""
        own, other = socket.socketpair()
        server = str(Path(__file__).parent / "fork_server.py")
        self._connection = own
        with other:
            self._server = subprocess.Popen(
                [sys.executable, server, str(other.fileno())],
                env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                pass_fds=[other.fileno()],
            )

    def run(
        self, source: str, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a source text to its end.

        Args:
            source: Run as ``__main__``.
            environment: All variables of the process. Those that the dynamic linker and Python
                read when a process starts have no effect.
            seconds: The process is killed after these.

        Raises:
            subprocess.TimeoutExpired: The process did not end in time.
        """
        own, other = socket.socketpair()
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors, own:
            files = [other.fileno(), output.fileno(), errors.fileno()]
            socket.send_fds(self._connection, [b"run"], files)
            other.close()
            with own.makefile("rwb") as stream:
                pickle.dump((source, dict(environment)), stream)
                stream.flush()
                process: int = pickle.load(stream)
                own.settimeout(seconds)
                try:
                    status: int = pickle.load(stream)
                except TimeoutError:
                    os.kill(process, 9)
                    raise subprocess.TimeoutExpired(source, seconds) from None
            return subprocess.CompletedProcess(source, status, _text(output), _text(errors))

    def close(self) -> None:
        """End the server."""
        self._connection.close()
        self._server.kill()
        self._server.wait()


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


RunPython = Callable[..., Finished]

# Ends what hangs; a loaded machine takes many times as long as an idle one.
HANG_SECONDS = 900


def _variables(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the variables of a process: those of this one, changed; None leaves one out."""
    changed = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **(changes or {})}
    return {name: value for name, value in changed.items() if value is not None}


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Return a function that runs source text in a new Python process."""

    def run(
        source: str,
        *,
        environment: Mapping[str, str | None] | None = None,
        program: tuple[str, ...] = (sys.executable, "-c"),
        seconds: float = HANG_SECONDS,
    ) -> Finished:
        done = subprocess.run(
            [*program, source],
            capture_output=True,
            text=True,
            env=_variables(environment),
            timeout=seconds,
            check=False,
        )
        return Finished(done)

    return run


@pytest.fixture(scope="session")
def run_forked() -> Iterator[RunPython]:
    """Return a function that runs source text in a process of its own, where torch is imported."""
    forked = ForkedPython()

    def run(
        source: str,
        *,
        environment: Mapping[str, str | None] | None = None,
        seconds: float = HANG_SECONDS,
    ) -> Finished:
        return Finished(forked.run(source, _variables(environment), seconds))

    yield run
    forked.close()
