"""SGLang on simulated CANN: its own attention update and ours, on one load.

Run as ``cann-sim run -- python -m engines.sglang.session``. Every variant is an engine of its own,
with its processes, under a limit of time. `stock` is the engine without this repository's plugin,
`off` has the plugin and not the variable, `captured` is `ours` with graphs that npu-graph-runtime
captured, `control` is the engine of `ours` once more, with key
lengths that are one too small. Tokens are compared with real kernels, host time is measured with
kernels that do nothing, in turns of one process. Rows go to build/engines/sglang.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import BLOCK_SIZE, MOST_SEQUENCES, compare_load
from engines.running.process_group import rows_of_variant, run_given
from engines.running.session_rows import (
    DESCRIBED,
    TOKEN_COLUMNS,
    beside_stock,
    find_unexpected,
    find_wrong,
    judgements,
)
from engines.running.session_run import conclude, make_parser, run_variants
from engines.sglang.scheduling.scheduler import COUNTED, run_scheduler
from engines.sglang.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Mapping

TURNS, STEPS_OF_TURN = 12, 14
RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "12"}
"""The engine's own settings of its tests: sequences give their pages back in each twelfth step."""
BACKENDS = {
    "ours": "UpdatedDecodeBackend",
    "control": "UpdatedDecodeBackend",
    "captured": "CapturedDecodeBackend",
}
COLUMNS = {
    **DESCRIBED,
    **dict.fromkeys(("graph_steps", "waits_in_graph_steps", "retracted", *COUNTED), ""),
    **TOKEN_COLUMNS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One engine to run.

    Attributes:
        name: In the table.
        dtype: Of the model.
        num_layers: Number of the model's layers.
        variable: The value of ``SGLANG_NPU_GRAPH``; None for no variable.
        plugins: The value of ``SGLANG_PLUGINS``: the engine loads only these plugins.
        timed: The numbers of sequences whose host time is measured, with kernels that do nothing;
            empty where tokens are compared.
    """

    name: str
    dtype: str
    num_layers: int
    variable: str | None = None
    plugins: str = "npu_graph"
    timed: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's processes."""
        # Importing torch_npu 2.10 in this process changes one of the settings.
        settings = stand_ins.SETTINGS
        given = {**os.environ, **settings, "SGLANG_PLUGINS": self.plugins}
        if self.variable is not None:
            given["SGLANG_NPU_GRAPH"] = self.variable
        if self.timed:
            given["CANN_SIM_KERNELS"] = "null"
            # The pages that the engine frees are read from the device, where nothing was
            # written: it would end for a leak.
            given["SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE"] = "0"
        else:
            given |= RETRACT
        return given


def make_engine(variant: Variant, checkpoint: Path, **options: Any) -> Any:
    """Return the engine of a variant, which captured its decode graphs.

    Args:
        variant: Of the session.
        checkpoint: Of the model.
        options: Of the engine, besides those here or in their place.
    """
    from sglang.srt.entrypoints.engine import Engine

    runs = {"run_scheduler_process_func": staticmethod(run_scheduler)}
    measured = type("MeasuredEngine", (Engine,), runs)
    most = max(variant.timed, default=MOST_SEQUENCES)
    given = {
        "model_path": str(checkpoint),
        "skip_tokenizer_init": True,
        "device": "npu",
        "attention_backend": "ascend",
        "dtype": variant.dtype,
        "context_length": 512,
        "max_running_requests": most,
        "max_total_tokens": (2 if variant.timed else 4) * BLOCK_SIZE * (most + 1),
        "cuda_graph_bs_decode": list(variant.timed or (1, 2, 4, 8, 16)),
        "disable_radix_cache": True,
        "random_seed": 0,
        "log_level": "info",
    }
    return measured(**{**given, **options})


def generate(
    engine: Any, prompts: list[list[int]], lengths: list[int], **given: Any
) -> list[list[int]]:
    """Return the given number of likeliest tokens after each prompt."""
    sampling = [
        {"max_new_tokens": length, "temperature": 0, "ignore_eos": True} for length in lengths
    ]
    outputs = engine.generate(input_ids=prompts, sampling_params=sampling, **given)
    return [list(output["output_ids"]) for output in outputs]


def run_load(
    variant: Variant,
    checkpoint: Path,
    count: int,
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control.

    Args:
        variant: Of the session.
        checkpoint: Of the model.
        count: Number of sequences.
        given: To `Engine.generate`, besides prompts and how they are sampled.
        options: Of the engine, besides those of `make_engine`.
    """
    engine = make_engine(variant, checkpoint, **options)
    rows = [measure_load(engine, variant, count, shift=0, **(given or {}))]
    if variant.name == "ours":
        control = dataclasses.replace(variant, name="control")
        rows.append(measure_load(engine, control, count, shift=-1, **(given or {})))
    return rows


def measure_load(
    engine: Any, variant: Variant, count: int, *, shift: int, **given: Any
) -> dict[str, Any]:
    """Return tokens and their cost."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counted.json"
        engine.collective_rpc("begin_load", shift=shift)
        tokens = generate(engine, *compare_load(count), **given)
        engine.collective_rpc("end_load", out=str(out))
        counted = read_counted(out)
    return {**describe(variant), "sequences": count, "tokens": tokens, **counted}


def read_counted(out: Path) -> dict[str, Any]:
    """Return the sums of all ranks' counts, and the backends of their replays.

    Args:
        out: The file of the first rank.
    """
    rows = [json.loads(path.read_text()) for path in sorted(out.parent.glob(f"{out.name}*"))]
    names = ("graph_steps", "waits_in_graph_steps", "idle_steps", *COUNTED)
    sums = {name: sum(row[name] for row in rows) for name in names}
    return {**rows[0], **sums, "backend": ", ".join(sorted({row["backend"] for row in rows}))}


def run_turns(variant: Variant, checkpoint: Path) -> list[dict[str, Any]]:
    """Decode on the sides in turns; return a row for each side and number of sequences."""
    engine = make_engine(variant, checkpoint)
    engine.collective_rpc("make_sides")
    for count in variant.timed:
        for number in range(4 * TURNS):
            engine.collective_rpc("begin_turn", number=number)
            generate(engine, [[1 + number] * 8] * count, [STEPS_OF_TURN] * count)
            engine.collective_rpc("end_turn", sequences=count)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "turns.json"
        engine.collective_rpc("write_turns", out=str(out))
        return [{**describe(variant), **row} for row in json.loads(out.read_text())]


def describe(variant: Variant) -> dict[str, Any]:
    """Return the first fields of a variant's row."""
    return {"name": variant.name, "dtype": variant.dtype, "num_layers": variant.num_layers}


def run_variant(variant: Variant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    if not checkpoint.exists():
        import torch
        from engines.models.tiny_qwen3 import write_checkpoint

        dtype = getattr(torch, variant.dtype)
        write_checkpoint(checkpoint, num_layers=variant.num_layers, dtype=dtype)
    if variant.timed:
        return run_turns(variant, checkpoint)
    return run_load(variant, checkpoint, count)


def run_apart(
    variant: Variant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in new processes, which end with it, and return its rows."""
    checkpoint = folder / f"{variant.dtype}-{variant.num_layers}"
    if variant.name == "transformers":
        return judgements(rows, variant.dtype, checkpoint, options.sequences)
    log, written = options.out.with_name(f"sglang-{number}.log"), folder / f"{number}.json"
    return rows_of_variant(
        __spec__.name,
        variant,
        checkpoint,
        options.sequences,
        environment=variant.environment(),
        described=describe(variant),
        log=log,
        out=written,
        limit=options.limit,
    )


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    return find_wrong(rows) + find_other_steps(rows)


def find_other_steps(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows whose steps differ from the stock engine's, or that wait unexpectedly."""
    wrong = [
        f"{row['name']}: no sequence gave its pages back"
        for row in rows
        if row.get("retracted") == 0
    ]
    for row, theirs, what in beside_stock(rows):
        if row["name"] == "stock" or theirs is None:
            continue
        if row["name"] == "control":
            # Its tokens differ, so it need not free the same pages.
            expected = {"backend": BACKENDS["control"], "waits_in_graph_steps": 0}
            wrong += find_unexpected(row, what, expected)
            continue
        same = ("graph_steps", "replays", "retracted", "backend")
        expected = {name: theirs[name] for name in same}
        waits = theirs["waits_in_graph_steps"]
        expected |= {
            "waits_in_graph_steps": waits,
            "synchronisations": theirs["synchronisations"],
        }
        if row["name"] != "off":
            # None is left in the steps of a graph, and none is added elsewhere.
            expected |= {"backend": BACKENDS[row["name"]], "waits_in_graph_steps": 0}
            expected["synchronisations"] -= waits
        wrong += find_unexpected(row, what, expected)
    return wrong


def choose_variants(options: argparse.Namespace) -> list[Variant]:
    """Return the variants selected by the options."""
    names: dict[str, dict[str, Any]] = {
        "stock": {"plugins": "none"},
        "off": {},
        "ours": {"variable": "1"},
        "captured": {"variable": '{"decode": "capture"}'},
        "transformers": {},
    }
    chosen = [("bfloat16", name) for name in names]
    chosen += [("float16", name) for name in ("stock", "ours", "transformers")]
    variants = [
        Variant(name=name, dtype=dtype, num_layers=options.layers, **names[name])
        for dtype, name in chosen
    ]
    timed = tuple(options.timed_sequences)
    variants += [
        Variant(name="turns", dtype="bfloat16", num_layers=layers, variable="1", timed=timed)
        for layers in options.timed_layers
    ]
    return variants


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("sglang", __doc__)
    parser.add_argument("--limit", type=float, default=900, help="seconds for a variant")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, Variant, run_variant)
        return 0
    stand_ins.set_environment()
    # What ends the session ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    rows = run_variants(choose_variants(options), options, run_apart)
    return conclude(rows, COLUMNS, "SGLang 0.5.23", verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
