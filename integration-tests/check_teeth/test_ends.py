"""However a run or a probe ends, there is a clear line and a file that `show` reads."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import cann_sim
from npu_graph_check.errors import CheckError
from npu_graph_check.probes.table import all_probes, find_probe
from npu_graph_check.results.result_file import read_results
from npu_graph_check.running.fork_server import ForkServer
from npu_graph_check.running.probe_process import probe_in_process
from npu_graph_check.running.start import NewInterpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npu_graph_check.running.start import Running, Start

_COMMAND = [sys.executable, "-m", "npu_graph_check"]
_FOLDER = str(Path(__file__).parents[1])
_FASTEST = ("capture.default-stream", "capture.synchronising", "capture.update-behind-replay")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        count = 20 if metafunc.config.getoption("--every-fault") else 2
        metafunc.parametrize("place", range(count))


@pytest.fixture(autouse=True)
def heard_signals() -> Iterator[None]:
    """Let processes that tests start hear signals that this one ignores, as a job of a shell."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ignored = [each for each in numbers if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, signal.default_int_handler)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of a process over the simulator."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([_FOLDER, os.environ["PYTHONPATH"]])}
    own.pop("CANN_SIM_MEMORY_CHECK", None)
    return cann_sim.launch_environment({**own, **variables})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_run_that_is_ended_anywhere_leaves_a_file_that_show_reads(
    tmp_path: Path, place: int, number: signal.Signals
) -> None:
    output = tmp_path / "r.json"
    command = [*_COMMAND, "run", "--output", str(output)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as process:
        while not output.exists():
            time.sleep(0.01)
        time.sleep(Random(place).uniform(0, 12))
        process.send_signal(number)
        status = process.wait(30)

    results = read_results(output)
    assert [each.id for each in results.probes] == [probe.id for probe in all_probes()]
    shown = subprocess.run([*_COMMAND, "show", str(output)], capture_output=True, check=True)
    assert b"not tried" in shown.stdout
    if number == signal.SIGINT:
        assert (status, results.ended) == (130, "interrupted")
    else:
        assert (status, results.ended) == (-signal.SIGKILL, "")


def test_processes_of_a_probe_end_with_the_one_that_started_it(tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    command = [*_COMMAND, "run", "--only", "capture.limited-synchronisation", "--output"]
    with subprocess.Popen([*command, str(output)], env=environment()) as process:
        server = probe = ""
        while not probe:
            time.sleep(0.01)
            server = server or next(iter(_children(process.pid, "forking_process")), "")
            probe = next(iter(_children(int(server), "")), "") if server else ""
        process.kill()
        process.wait()
    until = time.monotonic() + 10
    while any(Path("/proc", each).exists() for each in (server, probe)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _children(parent: int, word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            line = (path / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == parent and word in line:
            found.append(path.name)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.0, 9.0])
def test_signals_end_a_run_as_an_interrupt_does(
    tmp_path: Path, number: signal.Signals, after: float
) -> None:
    output, temporary = tmp_path / "r.json", tmp_path / "temporary"
    temporary.mkdir()
    command = [*_COMMAND, "run", "--output", str(output)]
    variables = environment(TMPDIR=str(temporary))
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as process:
        while not output.exists():
            time.sleep(0.01)
        time.sleep(after)
        # Several, as by an impatient user: the first one counts.
        for _ in range(3):
            process.send_signal(number)
            time.sleep(0.01)
        status = process.wait(30)

    # A signal that comes while the interpreter ends is its status.
    assert status in {130, -number}
    assert read_results(output).ended == "interrupted"
    assert list(temporary.glob("npu-graph-check-*")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "temporary"]


def test_modules_of_the_users_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("torch", "json", "npu_graph_runtime"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not mine')", encoding="utf-8")
    packages = [os.path.relpath(each, tmp_path) for each in os.environ["PYTHONPATH"].split(":")]
    variables = {**environment(), "PYTHONPATH": os.pathsep.join(packages)}
    start = f"import sys, npu_graph_check; sys.argv[1:] = {['run', '--only', _FASTEST[0]]!r}"

    # As the console script does, which has the folder not on its path.
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.remove(''); {start}; npu_graph_check.main()"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "1/1 capture.default-stream: confirmed\n")


def test_probe_that_somebody_kills_did_not_hang() -> None:
    def start(arguments: Sequence[str], folder: Path, errors: Path) -> Running:
        process = started(arguments, folder, errors)
        os.kill(process.pid, signal.SIGKILL)
        return process

    started = NewInterpreter(environment())
    found = probe_in_process(find_probe("capture.default-stream"), "npu", start)

    assert found.verdict == "otherwise"
    assert found.because.startswith("killed from outside after 0 s; if nobody did so, the host had")


def test_process_that_does_not_end_holds_up_no_further_probe() -> None:
    """A process that waits inside of a driver cannot be ended; here nobody ends it."""
    probe = find_probe("capture.default-stream")
    variables = environment(CANN_SIM_DEADLOCK_SECONDS="600")
    with ForkServer(variables) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = ["capture.update-behind-replay", "--into", str(folder / "lines")]
        hanging = "check_teeth.hanging_child"
        waiting = server(arguments, folder, folder / "errors", module=hanging)
        assert waiting.wait(1) is None

        assert probe_in_process(probe, "npu", server).verdict == "confirmed"


def test_hang_is_named_with_what_waited() -> None:
    probe = dataclasses.replace(find_probe("capture.update-behind-replay"), limit_s=3.0)

    # An update that is never released: the word is not written.
    found = probe_in_process(
        probe,
        "npu",
        NewInterpreter(
            environment(CANN_SIM_DEADLOCK_SECONDS="600"),
            [sys.executable, "-m", "check_teeth.hanging_child"],
        ),
    )

    assert found.verdict == "otherwise"
    assert "hung: ended after 3 s, while it was waiting for a replay whose update" in found.because
    assert "it waited in _call (cann/runtime.py:" in found.because


def test_stopped_device_is_otherwise_and_the_next_probe_restarts() -> None:
    probe = find_probe("capture.synchronising")

    stopped = probe_in_process(
        probe, "npu", NewInterpreter(environment(CANN_SIM_FAULTS="run(aclnnInplaceAdds):1"))
    )

    assert stopped.verdict == "otherwise"
    assert "CannError: aclrtSynchronizeStream: status 507011" in stopped.because
    assert probe_in_process(probe, "npu", NewInterpreter(environment())).verdict == "confirmed"


def test_crash_is_named_with_its_signal() -> None:
    found = probe_in_process(
        find_probe("capture.default-stream"),
        "npu",
        NewInterpreter(environment(), [sys.executable, "-c", "import os; os.abort()"]),
    )

    assert found.verdict == "otherwise"
    assert found.because.startswith("crashed with SIGABRT")


def test_forked_probes_end_like_new_interpreters() -> None:
    """Confirmed, hung, crashed, and without server: each is reported, and the next one runs."""
    probe = find_probe("capture.update-behind-replay")
    hangs = dataclasses.replace(probe, limit_s=3.0)
    with ForkServer(environment(CANN_SIM_DEADLOCK_SECONDS="600")) as server:
        hanging = functools.partial(server, module="check_teeth.hanging_child")
        hung = probe_in_process(hangs, "npu", hanging)
        crashed = probe_in_process(probe, "npu", functools.partial(server, module="antigravity_"))
        killed = probe_in_process(hangs, "npu", _killing_its_server(hanging))
        after = probe_in_process(probe, "npu", server)

    assert "hung: ended after 3 s, while it was waiting for a replay" in hung.because
    assert "it waited in _call (cann/runtime.py:" in hung.because
    assert "its process ended with status 1: " in crashed.because
    assert "No module named antigravity_" in crashed.because
    assert killed.verdict == "otherwise"
    assert after.verdict == "confirmed"


def _killing_its_server(start: Start) -> Start:
    def started(arguments: Sequence[str], folder: Path, errors: Path) -> Running:
        process = start(arguments, folder, errors)
        stat = Path("/proc", str(process.pid), "stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        return process

    return started


def test_server_that_cannot_start_is_a_line() -> None:
    variables = {**environment(), "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    with ForkServer(variables) as server, pytest.raises(CheckError, match="--new-interpreters"):
        probe_in_process(find_probe("capture.default-stream"), "npu", server)


def test_no_npu_is_a_line_and_a_file(tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}

    status, said, ended = _run(tmp_path, plain)

    assert status == 2
    assert said.count("\n") == 1
    assert "loading CANN's runtime: libascendcl.so" in said
    assert "cann-sim run" in ended


def test_missing_torch_npu_is_a_line_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\n"
        "real = m.version\n"
        "def version(name):\n"
        "    if name == 'torch_npu':\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n",
        encoding="utf-8",
    )
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])

    status, said, ended = _run(tmp_path, {**os.environ, "PYTHONPATH": paths})

    assert status == 2
    assert said.count("\n") == 1
    assert "torch_npu is not installed" in said
    assert "torch_npu is not installed" in ended


def _run(folder: Path, variables: dict[str, str]) -> tuple[int, str, str]:
    output = folder / "r.json"
    command = [*_COMMAND, "run", "--only", *_FASTEST, "--output", str(output)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, read_results(output).ended
