"""A tensor-parallel layer captured and replayed on two ranks, a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RANKS = 2
PROGRAM = Path(__file__).with_name("tensor_parallel_rank.py")


def run_ranks(store: Path) -> list[dict[str, Any]]:
    """Run a process a rank, and return what each printed."""
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CANN_SIM_DEVICES": str(RANKS)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(RANKS), str(store)],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    ended = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, ended, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


def test_captured_layer_of_two_ranks_replays_what_it_computes_eagerly(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path / "store")
    for result in (first, second):
        assert result["equal"]
        assert result["replayed"] == 6
        assert result["error"] < 1e-5
        # One for each step, eagerly and replayed, and those of the warm-up.
        assert result["collectives"] >= 12
    assert first["outputs"] == second["outputs"]
