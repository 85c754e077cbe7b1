"""SGLang on simulated CANN, when something fails: an error that says so, and never a hang.

Run as ``cann-sim run -- python engines/sglang_failures.py``. Every case is an engine with processes
of its own, and is given a time. What each ended with goes to build/engines/sglang-failures.json.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sglang_stand_ins
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sglang_session import ROOT, Variant, end_group

OUT = ROOT / "build" / "engines" / "sglang-failures.json"
MOST_SECONDS = 240
SEQUENCES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Something that fails in an engine.

    Attributes:
        name: In the table.
        expected: Must stand in what the engine's processes print.
        variable: The value of ``SGLANG_NPU_GRAPH``.
        faults: The value of ``CANN_SIM_FAULTS``.
        version: What the installed engine says that its version is; None for the truth.
    """

    name: str
    expected: str
    variable: str = "1"
    faults: str | None = None
    version: str | None = None


CASES = (
    Case(
        name="update fails, native",
        faults="task_update:3",
        expected="attn_update.errors.UpdateError: updating",
    ),
    Case(
        name="update fails, kernels",
        variable='{"updater": "kernels"}',
        faults="task_update:3",
        expected="attn_update.errors.UpdateError: updating",
    ),
    Case(name="capture fails", faults="capture_end:2", expected="an injected fault"),
    Case(
        name="other version",
        version="0.99.0",
        expected="loading sglang-npu-graph: tried with sglang 0.5.23, found 0.99.0",
    ),
    Case(
        name="unknown option",
        variable='{"updated": "native"}',
        expected="reading the environment variable SGLANG_NPU_GRAPH: expected 1, 0",
    ),
)


def run_case(case: Case, number: int, checkpoint: Path) -> dict[str, Any]:
    """Run a case in processes of its own, which end with it; return its row."""
    variant = Variant(name=case.name, dtype="bfloat16", num_layers=2, variable=case.variable)
    environment = variant.environment()
    log, folder = OUT.with_name(f"{OUT.stem}-{number}.log"), checkpoint.parent
    if case.faults is not None:
        environment["CANN_SIM_FAULTS"] = case.faults
    if case.version is not None:
        metadata = folder / f"sglang-{case.version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {case.version}\n")
        environment["PYTHONPATH"] = f"{folder}:{environment.get('PYTHONPATH', '')}"
    rows = folder / f"{number}.json"
    given = json.dumps([dataclasses.asdict(variant), str(checkpoint), SEQUENCES, str(rows)])
    session = Path(__file__).with_name("sglang_session.py")
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, str(session), "--run", given],
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            ended = f"its process ended with {process.wait(MOST_SECONDS)}"
            has_ended = True
        except subprocess.TimeoutExpired:
            ended = f"a hang: nothing after {MOST_SECONDS} s"
            has_ended = False
        finally:
            end_group(process)
    lines = [line for line in log.read_text(errors="replace").splitlines() if case.expected in line]
    told = lines[-1] if lines else f"not in {log}: {case.expected}"
    right = bool(lines) and has_ended and not rows.exists()
    return {"case": case.name, "right": right, "ended": ended, "told": told}


def main() -> int:
    """Run all cases; return 1 if one did not end as it should."""
    sglang_stand_ins.set_environment()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        rows = [run_case(case, number, checkpoint) for number, case in enumerate(CASES)]
    OUT.write_text(json.dumps(rows, indent=1))
    title = "SGLang with sglang-npu-graph, when something fails"
    table = Table("case", "right", "ended", "told", title=title)
    for row in rows:
        right = "yes" if row["right"] else "NO"
        table.add_row(row["case"], right, row["ended"], escape(row["told"][:200]))
    Console(width=160).print(table)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
