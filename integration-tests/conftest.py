"""Everything here runs on the real torch_npu over simulated CANN, by public names only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim

os.environ.setdefault("CANN_SIM_MEMORY_CHECK", "on")
cann_sim.activate()

import torch  # noqa: E402

from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine.tiny_checkpoint import write_tiny_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable


pytest_plugins = "cann_sim.pytest_plugin"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("modes", "how much of the matrix of modes runs, see `./nox -s modes`")
    group.addoption("--every-mode", action="store_true", help="long-compiling ones in every dtype")
    group.addoption("--matrix-steps", type=int, default=12, help="steps of each kind")
    group.addoption("--matrix-share", type=int, default=1, help="cells to draw; 0 for all")
    group.addoption("--matrix-seed", type=int, default=0, help="draws them")
    group.addoption("--write-matrix", action="store_true", help="write docs/modes.md")
    group.addoption("--write-launches", action="store_true", help="write docs/plain-models.md")
    group.addoption("--soak-minutes", type=float, default=0, help="of serving; 0 for a share")
    group.addoption("--soak-seed", type=int, default=0, help="of the first episode")
    group.addoption("--episodes", type=int, default=0, help="of fuzzed engines; 0 for a share")
    group.addoption("--seed", type=int, default=0, help="of the first of these episodes")
    group.addoption("--every-fault", action="store_true", help="of npu-graph-check's probes")
    group.addoption("--write-teeth", action="store_true", help="write docs/check-teeth.md")
    group.addoption(
        "--repeated-runs", type=int, default=24, help="of several decode steps a replay"
    )
    group.addoption("--schedules", type=int, default=90, help="fuzzed schedules to run")
    group.addoption("--schedule-seed", type=int, default=0, help="of the first of them")
    group.addoption("--speculative-steps", type=int, default=30, help="without a host wait")


@pytest.fixture(scope="session")
def device() -> NpuDevice:
    return NpuDevice()


@pytest.fixture
def num_schedules(pytestconfig: pytest.Config) -> int:
    count: int = pytestconfig.getoption("--schedules")
    return count


@pytest.fixture
def schedule_seed(pytestconfig: pytest.Config) -> int:
    seed: int = pytestconfig.getoption("--schedule-seed")
    return seed


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("qwen3"), dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def half_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("qwen3_half"), dtype=torch.float16)


@pytest.fixture
def run_ranks() -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs a program of this folder in two processes, one per rank.

    It accepts the name of the file and further arguments, and returns what each rank printed, as
    JSON.
    """

    def run(program: str, *arguments: object) -> list[dict[str, Any]]:
        path, ranks = Path(__file__).with_name(program), 2
        variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CANN_SIM_DEVICES": str(ranks)}
        processes = [
            subprocess.Popen(
                [sys.executable, str(path), str(rank), str(ranks), *map(str, arguments)],
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        ended = [process.communicate(timeout=300) for process in processes]
        for process, (_, errors) in zip(processes, ended, strict=True):
            assert process.returncode == 0, errors
        return [json.loads(output.splitlines()[-1]) for output, _ in ended]

    return run
