"""Processes that are the ranks of a process group, one simulated device each.

Starting a process costs seconds, so the processes stay, and run one function after the other, each
in a process group of its own.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Only against a hang: no test depends on it.
_LONGEST_SECONDS = 300

_PROGRAM = "from collectives.rank_processes import serve; serve()"


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A function to run on each rank.

    Attributes:
        function: Called with the rank and the arguments, in a process group of all ranks.
        arguments: The arguments, the same on every rank.
        store: File through which the ranks find each other; None if they need no process group.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    store: str | None


class RankError(AssertionError):
    """A function raised on some rank; the text has the tracebacks."""


class RankProcesses:
    """As many processes as ranks, each with its device set."""

    def __init__(self, ranks: int, environment: Mapping[str, str] | None = None) -> None:
        """Start the processes.

        Args:
            ranks: Their number, which is that of the simulated devices too.
            environment: Variables of the processes, besides those of this one.
        """
        self.ranks = ranks
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            "CANN_SIM_DEVICES": str(ranks),
            # Else torch_npu's watchdog, which looks at the events of collectives now and then, ends
            # a process whose device has stopped, before or after what the test looks at.
            "HCCL_ASYNC_ERROR_HANDLING": "0",
            **(environment or {}),
        }
        for rank in range(ranks):
            own, other = Pipe()
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(other.fileno()), str(rank), str(ranks)],
                env=variables,
                pass_fds=[other.fileno()],
            )
            other.close()
            self._connections.append(own)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a function of a module on every rank, in a process group, and return the results.

        Raises:
            RankError: The function raised on a rank.
        """
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "store")
            return self._run(_Task(function=function, arguments=arguments, store=store))

    def run_without_group(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Do the same without a process group."""
        return self._run(_Task(function=function, arguments=arguments, store=None))

    def kill(self, rank: int) -> None:
        """End a process as the operating system does it, without any notice."""
        self._processes[rank].kill()

    def start(self, rank: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Start a function of one rank without a process group."""
        task = _Task(function=function, arguments=arguments, store=None)
        self._connections[rank].send_bytes(pickle.dumps(task))

    def result(self, rank: int) -> Any:
        """Wait for the function of one rank and return its result.

        Raises:
            RankError: The function raised, or its process ended.
        """
        connection = self._connections[rank]
        if not connection.poll(_LONGEST_SECONDS):
            message = f"rank {rank} has no result after {_LONGEST_SECONDS} s"
            raise RankError(message)
        try:
            succeeded, value = pickle.loads(connection.recv_bytes())
        except EOFError:
            message = f"the process of rank {rank} has ended"
            raise RankError(message) from None
        if not succeeded:
            message = f"rank {rank}:\n{value}"
            raise RankError(message)
        return value

    def close(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            _end(process)

    def _run(self, task: _Task) -> list[Any]:
        for connection in self._connections:
            connection.send_bytes(pickle.dumps(task))
        outcomes = [self._outcome(rank) for rank in range(self.ranks)]
        errors = [outcome for outcome in outcomes if isinstance(outcome, RankError)]
        if errors:
            raise RankError("\n".join(map(str, errors)))
        return outcomes

    def _outcome(self, rank: int) -> Any:
        try:
            return self.result(rank)
        except RankError as error:
            return error


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve() -> None:
    """Run the tasks that the parent sends, until it closes the connection."""
    connection, rank, ranks = Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    cann_sim.activate()
    # Loads the device libraries, which have to be the simulated ones.
    import torch
    import torch_npu

    torch.set_num_threads(1)
    torch_npu.npu.config.allow_internal_format = False
    torch_npu.npu.set_compile_mode(jit_compile=False)
    torch_npu.npu.set_device(rank)
    while True:
        try:
            task = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, _run_task(task, rank, ranks))
        except BaseException:  # noqa: BLE001 (the parent raises it)
            answer = (False, traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))


def _run_task(task: _Task, rank: int, ranks: int) -> Any:
    if task.store is None:
        return task.function(rank, *task.arguments)
    import torch.distributed as dist

    method = f"file://{task.store}"
    dist.init_process_group("hccl", init_method=method, rank=rank, world_size=ranks)
    try:
        return task.function(rank, *task.arguments)
    finally:
        # A device that stopped would end no group; on hardware its process ends.
        cann_sim.restart_devices()
        while dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
