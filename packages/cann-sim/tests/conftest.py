"""The simulated device in the process of the tests, and Python processes of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import cann_sim

os.environ.setdefault("CANN_SIM_DEADLOCK_SECONDS", "5")
cann_sim.activate()

import pytest  # noqa: E402
import torch_npu  # noqa: E402

pytest_plugins = "cann_sim.pytest_plugin"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=60, help="fuzzed schedules of the update protocol"
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
        """Return what the last failed call of this thread said."""
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


RunPython = Callable[..., Finished]

# Ends what hangs; a loaded machine takes many times as long as an idle one.
HANG_SECONDS = 900


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
        variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        for name, value in (environment or {}).items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value
        done = subprocess.run(
            [*program, source],
            capture_output=True,
            text=True,
            env=variables,
            timeout=seconds,
            check=False,
        )
        return Finished(done)

    return run
