"""SGLang's resolved arguments and hooks with this repository's plugin and without, one by one.

Run as ``cann-sim run -- python -m engines.sglang.configuration``. The environment variable is
absent, off or on, and other plugins are there or not: one that the engine loads in front of ours,
and one after. Without the variable nothing may differ from the engine without our plugin; with it,
hooks are added to the functions that the plugin names, and those of the others stay and are called.
Then the plugins of others take what ours needs, which the engine's start has to end with. Rows go
to build/engines/sglang-configuration.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from engines.running.process_group import rows_of_variant, run_given
from engines.running.resolved_configuration import differences, flatten
from engines.running.session_run import ROOT
from engines.sglang import foreign_plugins as foreign
from engines.sglang.without_device import stand_ins

MOST_SECONDS = 300
VARIABLES = {"absent": None, "off": "0", "on": "1"}
START = "sglang.srt.managers.scheduler.Scheduler.__init__"
OURS = {
    "sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend.NPUCudaGraphBackend",
    "sglang.srt.model_executor.runner_backend.utils.resolve_prefill_backend",
    (
        "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph"
        "._EagerOnGraphCallable.__call__"
    ),
    START,
}
ERROR = "starting the scheduler with sglang-npu-graph: expected "


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A process that loads the engine's plugins.

    Attributes:
        name: In messages.
        variable: The value of ``SGLANG_NPU_GRAPH``; None for no variable.
        ours: Whether the engine may load our plugin.
        others: Other plugins, by name, loaded before ours and after it.
        timed: Empty.
    """

    name: str
    variable: str | None = None
    ours: bool = True
    others: tuple[str, ...] = ()
    timed: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        names = [f"foreign_{name}" for name in self.others] + ["npu_graph"] * self.ours
        given = {**os.environ, **stand_ins.SETTINGS}
        given["SGLANG_PLUGINS"] = ",".join(names) or "none"
        given["PYTHONHASHSEED"] = "0"  # the engine keeps a hash of an object among its arguments
        if self.variable is not None:
            given["SGLANG_NPU_GRAPH"] = self.variable
        return given


def choose_sides() -> list[Side]:
    """Return stock and ours, without and with other plugins."""
    made = []
    for others in ((), ("first", "last")):
        among = " among others" if others else ""
        made.append(Side(name=f"stock{among}", ours=False, others=others))
        made += [
            Side(name=f"{name}{among}", variable=variable, others=others)
            for name, variable in VARIABLES.items()
        ]
    return [*made, Side(name="replaced", variable="1", others=("replace",))]


def describe_hooks() -> dict[str, list[str]]:
    """Return the hooks of each hooked function, the outermost first."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    found = {}
    for target in HookRegistry._hooks:
        names, value = [], pkgutil.resolve_name(target)
        while value is not None:
            # What wraps a function keeps its hook in a closure.
            inner = getattr(value, "__wrapped__", None) if inspect.isfunction(value) else None
            hook = value if inner is None else inspect.getclosurevars(value).nonlocals["hook"]
            names.append(getattr(hook, "__qualname__", type(hook).__qualname__))
            value = inner
        found[target] = names
    return found


def run_side(side: Side, checkpoint: Path, _count: int) -> list[dict[str, Any]]:
    """Load the plugins in this process, and return the row of a side."""
    kept = stand_ins.prepare()
    for name in side.others:
        # The engine loads plugins in the order in which Python finds their metadata.
        folder = foreign.install(checkpoint.parent / side.name, name)
        sys.path.insert(0 if name == "first" else len(sys.path), folder)
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    load_plugins()
    given = {
        "model_path": str(checkpoint),
        "skip_tokenizer_init": True,
        "device": "npu",
        "attention_backend": "ascend",
        "random_seed": 0,
    }
    server_args = ServerArgs(**given)
    server_args.resolve_once()
    pkgutil.resolve_name(foreign.CALLED)()
    row = {"name": side.name, "hooks": describe_hooks(), "calls": foreign.CALLS[-2:]}
    try:
        pkgutil.resolve_name(START)(None, None, None)
    except SystemExit as error:
        row["error_of_start"] = str(error)
    except Exception:  # of a scheduler that is None
        row["error_of_start"] = None
    del kept
    return [{**row, "made": flatten(server_args, "server_args")}]


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    by_name = {row["name"]: row for row in rows if "error" not in row}
    replaced = by_name.pop("replaced", None)
    if replaced is not None and not str(replaced["error_of_start"]).startswith(ERROR):
        wrong.append(f"replaced: the start ended with {replaced['error_of_start']!r}")
    for name, row in by_name.items():
        among = " among others" if name.endswith(" among others") else ""
        stock = by_name[f"stock{among}"]
        found = differences(row["made"], stock["made"])
        wrong += [f"{name}: {field} is {a}, {b} in stock" for field, (a, b) in found.items()]
        if row["error_of_start"] is not None:
            wrong.append(f"{name}: the start ended with {row['error_of_start']!r}")
        if among and row["calls"] != ["last", "first"]:
            wrong.append(f"{name}: of the hooks of others were called: {row['calls']}")
        added = OURS if name.startswith("on") else set()
        if row["hooks"].keys() != stock["hooks"].keys() | added:
            wrong.append(f"{name}: hooked are {sorted(row['hooks'])}")
        for target, theirs in stock["hooks"].items():
            left = [hook for hook in row["hooks"].get(target, ()) if hook in theirs]
            # A method of the class that ours replaces is ours.
            expected = theirs[:-1] if target == foreign.METHOD and added else theirs
            if left != expected:
                wrong.append(f"{name}: of the hooks {theirs} of {target} are left: {left}")
    return wrong


def main() -> int:
    """Compare all sides; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, Side, run_side)
        return 0
    out = ROOT / "build" / "engines" / "sglang-configuration.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    stand_ins.set_environment()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        kept = stand_ins.prepare()
        import torch
        from engines.models.tiny_qwen3 import write_checkpoint

        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(checkpoint, num_layers=2, dtype=torch.bfloat16)
        del kept
        for number, side in enumerate(choose_sides()):
            rows += rows_of_variant(
                __spec__.name,
                side,
                checkpoint,
                0,
                environment=side.environment(),
                described={"name": side.name},
                log=out.with_name(f"{out.stem}-{number}.log"),
                out=Path(folder) / f"{number}.json",
                limit=MOST_SECONDS,
            )
            print(f"{side.name}: {'error' if 'error' in rows[-1] else 'done'}", flush=True)
    out.write_text(json.dumps(rows, indent=1))
    wrong = find_wrong(rows)
    print("\n".join(wrong) or "arguments and hooks of every side are those expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
