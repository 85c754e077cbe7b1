"""Counts of instructions: subjects of a benchmark in a process of its own under Callgrind.

The benchmark starts itself with ``--requests=<library>``. That process counts by the library's
calls, which are no more than requests to Valgrind (callgrind_requests.cpp), and names each subject
by its position. Needs Valgrind with its headers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def count_subjects(script: str, *options: str, on_simulator: bool) -> dict[int, int]:
    """Run a benchmark under Callgrind; return the instructions of its counting thread, by subject.

    Args:
        script: The benchmark.
        options: Command-line options, in addition to ``--requests``.
        on_simulator: Whether it runs on simulated CANN, with kernels that do nothing and without
            torch_npu's task queue.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes"]
        command += ["--instr-atstart=no", "--collect-atstart=no"]
        command += [f"--callgrind-out-file={folder}/counts"]
        command += [sys.executable, script, f"--requests={_build_requests(folder)}", *options]
        environment = dict(os.environ)
        if on_simulator:
            command = [str(Path(sys.executable).with_name("cann-sim")), "run", "--", *command]
            # Valgrind cannot map much memory at once.
            environment |= {"CANN_SIM_KERNELS": "null", "CANN_SIM_MEMORY_GB": "2"}
            environment |= {"TASK_QUEUE_ENABLE": "0"}
        subprocess.run(command, env=environment, check=True, timeout=1500)
        return _read_counts(folder)


def _build_requests(folder: Path) -> Path:
    """Compile the requests to Callgrind; returns the library."""
    target = folder / "requests.so"
    source = Path(__file__).with_name("callgrind_requests.cpp")
    command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(target)]
    subprocess.run(command, check=True, timeout=300)
    return target


def _read_counts(folder: Path) -> dict[int, int]:
    counts: dict[int, int] = {}
    for path in folder.glob("counts.*"):
        text = path.read_text(errors="replace")
        subject = re.search(r"^desc: Trigger: Client Request: subject (\d+)$", text, re.MULTILINE)
        total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
        if subject is not None and total is not None:
            position = int(subject[1])
            counts[position] = max(counts.get(position, 0), int(total[1]))
    return counts
