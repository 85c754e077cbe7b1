"""The cost of a compilation, cold and cached: shapes of Qwen3-32B, weights on no device.

Run by ``./nox -s bench -- compile``; options after the name, as ``--layers=64``, ``--rounds=3``.
Prints a table and writes rows ``{case, layers, subject, seconds, ratio_to_floor,
seconds_of_backend}`` to build/bench/compile.json: the minimum of some rounds, in which subjects
take turns. The floor is Dynamo alone, with a backend that runs the graph unchanged.
``seconds_of_backend`` is the time between the call of a backend and its return, which is the work
of the packages. For the rows from the cache, a new process compiles each time, and finds everything
in the ``cache_folder`` that an earlier one filled. The time covers `compile_model` and the first
call, including the lookup and comparison of the entry. It does not cover imports and the creation
of the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cann_sim

cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from npu_compile import Backend, CompileConfig, compile_model  # noqa: E402
from npu_graph_runtime import GraphContext, GraphKey, NpuDevice, RunMode  # noqa: E402
from qwen3_engine.qwen3.attention import (  # noqa: E402
    AttentionOperator,
    attend_at_once,
    leave_unmarked,
)
from qwen3_engine.qwen3.model import Qwen3Model  # noqa: E402
from qwen3_engine.qwen3.model_config import Qwen3Config  # noqa: E402
from qwen3_engine.serving.step_state import StepState  # noqa: E402
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS = 8
MAX_LENGTH = 512
BLOCKS = 4
CACHED = {"eager": "fused, from the cache", "piecewise": "fused, split, captured, from the cache"}
# config.json of Qwen3-32B.
SHAPE = {
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    subject: str
    seconds: float
    ratio_to_floor: float
    seconds_of_backend: float


def make_model(layers: int) -> Qwen3Model:
    """Return a model whose parameters and cache have no memory."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_checkpoint(folder, shape=TinyShape(num_layers=1))
        path = Path(folder) / "config.json"
        values = {**json.loads(path.read_text()), **SHAPE, "num_hidden_layers": layers}
        values.pop("layer_types", None)
        path.write_text(json.dumps(values))
        config = Qwen3Config.from_folder(folder)
    device, dtype = torch.device("meta"), torch.bfloat16
    attention = AttentionOperator(
        config,
        dtype=dtype,
        device=device,
        attend=attend_at_once,
        step_state=StepState(),
        mark=leave_unmarked,
    )
    return Qwen3Model(
        config,
        attention,
        num_blocks=BLOCKS,
        max_length=MAX_LENGTH,
        dtype=dtype,
        device=device,
    ).eval()


def make_inputs() -> dict[str, torch.Tensor]:
    """Return the arguments of a decode step, without memory."""
    rows = torch.zeros(ROWS, dtype=torch.int32, device="meta")
    return {
        "input_ids": rows,
        "positions": rows.to(torch.int64),
        "slot_mapping": rows.clone(),
        "block_table": rows.new_zeros(ROWS, BLOCKS),
    }


def compile_once(model: Qwen3Model, backend: Callable[..., object]) -> tuple[float, float]:
    """Return the seconds of a first call, and those between call and return of the backend."""
    spent = 0.0

    def timed(graph: torch.fx.GraphModule, inputs: Sequence[object]) -> object:
        nonlocal spent
        begun = time.perf_counter()
        compiled = backend(graph, inputs)
        spent += time.perf_counter() - begun
        return compiled

    inputs = make_inputs()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=timed, fullgraph=True, dynamic=False)
    begun = time.perf_counter()
    with torch.no_grad():
        compiled(**inputs)
    return time.perf_counter() - begun, spent


def rows_of(layers: int, rounds: int) -> list[Row]:
    """Compile in every way, turn by turn."""
    model = make_model(layers)
    device = NpuDevice()

    def with_mode(mode: str) -> Callable[..., object]:
        names = (model.attention.name,) if mode == "piecewise" else ()
        config = CompileConfig(mode=mode, splitting_ops=names, capture_sizes=(ROWS,))  # type: ignore[arg-type]
        return Backend(config, device=device, context=GraphContext())

    subjects: dict[str, Callable[[], Callable[..., object]]] = {
        "Dynamo alone": lambda: lambda graph, _: graph.forward,
        "fused": lambda: with_mode("eager"),
        "fused and split": lambda: with_mode("piecewise"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, make in subjects.items():
            found[name].append(compile_once(model, make()))
    for mode, name in CACHED.items():
        found[name] = [(seconds, 0.0) for seconds in seconds_from_cache(layers, rounds, mode)]
    least = {name: min(each) for name, each in found.items()}
    floor = least["Dynamo alone"][0]
    return [
        Row(
            case="from the cache" if name in CACHED.values() else "cold compilation",
            layers=layers,
            subject=name,
            seconds=seconds,
            ratio_to_floor=seconds / floor,
            seconds_of_backend=spent,
        )
        for name, (seconds, spent) in least.items()
    ]


def seconds_from_cache(layers: int, rounds: int, mode: str) -> list[float]:
    """Fill a cache in one process, then compile from it in some others, one after the other.

    Raises:
        RuntimeError: a process did not find its entry.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 + rounds):
            command = (sys.executable, __file__, f"--layers={layers}", "--into", folder)
            output = subprocess.run(
                (*command, f"--mode={mode}"), check=True, capture_output=True, text=True
            ).stdout
            told = json.loads(output.splitlines()[-1])
            if number and not all("from the compile cache" in line for line in told["cache"]):
                raise RuntimeError(f"compiling from the cache, mode {mode!r}: {told['cache']}")
            found.append(float(told["seconds"]))
    return found[1:]


def compile_into(folder: str, mode: str, layers: int) -> None:
    """Compile with a cache, and print the seconds and the cache section of the reports."""
    model = make_model(layers)
    device, inputs = NpuDevice(), make_inputs()
    names = (model.attention.name,)
    config = CompileConfig(mode=mode, splitting_ops=names, cache_folder=folder)  # type: ignore[arg-type]
    begun = time.perf_counter()
    compiled = compile_model(model, config, device=device)
    if mode == "eager":
        compiled(**inputs)
    else:
        key = GraphKey(num_tokens=ROWS)
        with compiled.capture_session(), compiled.context.run(RunMode.BREAKABLE, key):
            compiled(**inputs)
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": seconds, "cache": [each.cache for each in compiled.reports]}))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", help="compile once with this cache folder, and say how long")
    parser.add_argument("--mode", default="eager", help="of it")
    options = parser.parse_args()
    if options.into:
        compile_into(options.into, options.mode, options.layers)
        return
    rows = rows_of(options.layers, options.rounds)
    table = Table(title=f"compilation of {options.layers} layers")
    for column in ("subject", "seconds", "to the floor", "of it in the backend"):
        table.add_column(column, justify="left" if column == "subject" else "right")
    for row in rows:
        backend = f"{row.seconds_of_backend:.2f}"
        table.add_row(row.subject, f"{row.seconds:.2f}", f"{row.ratio_to_floor:.2f}", backend)
    Console(width=100).print(table)
    folder = Path(__file__).parent.parent / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=1)
    (folder / "compile.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
