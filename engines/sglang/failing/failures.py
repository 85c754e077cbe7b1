"""SGLang on simulated CANN, when something fails: an error that says so, and never a hang.

Run as ``cann-sim run -- python -m engines.sglang.failing.failures``. Every case is an engine with
processes of its own, and is given a time. What each ended with goes to
build/engines/sglang-failures.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engines.running.process_group import run_group
from engines.running.session_run import ROOT
from engines.sglang import foreign_plugins
from engines.sglang.scheduling.scheduler import DEVICE_LENGTHS, PLUGINS_FOLDER
from engines.sglang.session import Variant
from engines.sglang.without_device import stand_ins
from rich.console import Console
from rich.markup import escape
from rich.table import Table

OUT = ROOT / "build" / "engines" / "sglang-failures.json"
MOST_SECONDS = 240
HANG = f"a hang: nothing after {MOST_SECONDS} s"
SEQUENCES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Something that fails in an engine.

    Attributes:
        name: In the table.
        expected: Must occur in the output of the engine's processes.
        variable: The value of ``SGLANG_NPU_GRAPH``.
        module: The module that runs the engine.
        faults: The value of ``CANN_SIM_FAULTS``.
        version: The version that the installed engine reports; None for its own.
        plugin: Another plugin that the scheduler loads after ours.
    """

    name: str
    expected: str
    variable: str = "1"
    module: str = "engines.sglang.session"
    faults: str | None = None
    version: str | None = None
    plugin: str | None = None


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
        name="capture fails, by the runtime",
        variable='{"decode": "capture"}',
        faults="capture_end:2",
        expected="capturing 'decode' under key",
    ),
    Case(
        name="capture of prefill fails",
        module="engines.sglang.prefill",
        faults="capture_end:2",
        expected="capturing segment 2",
    ),
    # The device stops: whatever waits for it next ends the engine. Twenty run in warm-ups.
    Case(
        name="kernel fails in a replay",
        faults="run(aclnnFusedInferAttentionScoreV3):40",
        expected="error code is 507011",
    ),
    Case(
        name="other version",
        version="0.99.0",
        expected="loading sglang-npu-graph: tried with sglang 0.5.23, found 0.99.0",
    ),
    Case(
        name="another plugin replaces the graphs",
        plugin="replace",
        expected="starting the scheduler with sglang-npu-graph: expected ",
    ),
    Case(
        name="unknown option",
        variable='{"updated": "native"}',
        expected="reading the environment variable SGLANG_NPU_GRAPH: expected 1, 0",
    ),
)


def run_apart(
    variant: Variant,
    environment: dict[str, str],
    checkpoint: Path,
    log: Path,
    rows: Path,
    module: str = "engines.sglang.session",
) -> str | None:
    """Run a variant in new processes; return how it ended, None for a hang.

    Args:
        variant: What is run.
        environment: Of the processes.
        checkpoint: Of the model.
        log: What they print.
        rows: File for the rows; written if the run did not fail.
        module: What runs it.
    """
    given = json.dumps([dataclasses.asdict(variant), str(checkpoint), SEQUENCES, str(rows)])
    return run_group(module, given, environment, log, MOST_SECONDS)


def run_case(case: Case, number: int, checkpoint: Path) -> dict[str, Any]:
    """Run a case; return its row."""
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
    if case.plugin is not None:
        environment[PLUGINS_FOLDER] = foreign_plugins.install(folder, case.plugin)
        environment["SGLANG_PLUGINS"] += f",foreign_{case.plugin}"
    rows = folder / f"{number}.json"
    ended = run_apart(variant, environment, checkpoint, log, rows, case.module)
    lines = [line for line in log.read_text(errors="replace").splitlines() if case.expected in line]
    told = lines[-1] if lines else f"not in {log}: {case.expected}"
    right = bool(lines) and ended is not None and not rows.exists()
    return {"case": case.name, "right": right, "ended": ended or HANG, "told": told}


def run_device_lengths(checkpoint: Path) -> dict[str, Any]:
    """Run an attention that reads its lengths on the device, by the engine and by ours."""
    found: dict[str, Any] = {}
    for name, plugins, variable in (("stock", "none", None), ("ours", "npu_graph", "1")):
        variant = Variant(
            name=name, dtype="bfloat16", num_layers=2, plugins=plugins, variable=variable
        )
        environment = {**variant.environment(), DEVICE_LENGTHS: "1"}
        log, rows = OUT.with_name(f"{OUT.stem}-{name}.log"), checkpoint.parent / f"{name}.json"
        ended = run_apart(variant, environment, checkpoint, log, rows) or HANG
        if not rows.exists():
            told = f"{name} gave no rows; see {log}"
            return {"case": "lengths on the device", "right": False, "ended": ended, "told": told}
        found[name] = json.loads(rows.read_text())[0]
    stock, ours = found["stock"], found["ours"]
    num_tokens, steps = sum(map(len, stock["tokens"])), ours["graph_steps"]
    is_same = stock["tokens"] == ours["tokens"]
    updates = ours["task_updates"], ours["waits_in_graph_steps"]
    told = (
        f"{num_tokens} tokens {'equal' if is_same else 'unlike'} to stock's; {updates[0]} updates "
        f"and {updates[1]} waits in {steps} steps of {ours['backend']}"
    )
    right = is_same and updates == (0, 0) and steps > 0 and "Updated" in ours["backend"]
    return {"case": "lengths on the device", "right": right, "ended": ended, "told": told}


def main() -> int:
    """Run all cases; return 1 if one did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="words in the names of cases")
    only = parser.parse_args().only
    cases = [each for each in CASES if not only or any(word in each.name for word in only)]
    stand_ins.set_environment()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        rows = [] if only else [run_device_lengths(checkpoint)]
        rows += [run_case(case, number, checkpoint) for number, case in enumerate(cases)]
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
