"""The demo: one workload in every compile mode, compared with eager and with transformers."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from npu_graph_runtime import NpuDevice
from qwen3_engine.demonstration.comparison import Verdict, compare_with_reference
from qwen3_engine.demonstration.mode_run import (
    ModeResult,
    ModeSettings,
    differing_requests,
    run_mode,
)
from qwen3_engine.demonstration.reference import ReferenceModel
from qwen3_engine.demonstration.workload import mixed_arrivals
from qwen3_engine.qwen3.kv_cache import num_blocks_for
from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.tiny_checkpoint import write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qwen3_engine.demonstration.workload import Arrival

MODES = ("eager", "full", "piecewise")

# From one token to several blocks of the cache, on both sides of a block's edge.
PROMPT_LENGTHS = (5, 127, 300, 1, 64, 128, 17, 200, 129, 33, 90, 2)
OUTPUT_TOKENS = (40, 72, 24, 56)
STEPS_BETWEEN_ARRIVALS = 16
CAPTURE_SIZES = (1, 2, 4, 8)

# A console that is not a terminal has no width of its own; the table needs this much.
_WIDTH_IN_A_PIPE = 140


def run_demo(command_line: Sequence[str], *, count_launches: Callable[[], int]) -> int:
    """Run all modes, print the table, and return the exit status.

    Args:
        command_line: the options of the demo.
        count_launches: returns the operator launches of this process so far.

    Returns:
        0 if every verdict is good, else 1.
    """
    arguments = _parse(command_line)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_IN_A_PIPE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.checkpoint
        if folder is None:
            folder = write_tiny_checkpoint(Path(temporary))
            console.print("Wrote a tiny random Qwen3 checkpoint.")
        return _run(folder, getattr(torch, arguments.dtype), console, count_launches)


def _run(
    folder: Path, dtype: torch.dtype, console: Console, count_launches: Callable[[], int]
) -> int:
    config = Qwen3Config.from_folder(folder)
    arrivals = mixed_arrivals(
        PROMPT_LENGTHS,
        vocab_size=config.vocab_size,
        output_tokens=OUTPUT_TOKENS,
        steps_between=STEPS_BETWEEN_ARRIVALS,
        sampled_every=4,
    )
    max_length = max(PROMPT_LENGTHS) + max(OUTPUT_TOKENS)
    settings = ModeSettings(
        folder=folder,
        capture_sizes=CAPTURE_SIZES,
        num_blocks=1 + CAPTURE_SIZES[-1] * num_blocks_for(max_length),
        max_length=max_length,
        max_num_sequences=CAPTURE_SIZES[-1],
        dtype=dtype,
    )
    device = NpuDevice()
    results = [
        _run_with_progress(mode, settings, arrivals, device, console, count_launches)
        for mode in MODES
    ]
    console.print("Comparing with transformers on the CPU, in float32, under teacher forcing.")
    reference = ReferenceModel(folder)
    is_greedy = [arrival.request.sampling.temperature == 0 for arrival in arrivals]
    verdicts = [
        compare_with_reference(
            [out for out, greedy in zip(result.outputs, is_greedy, strict=True) if greedy],
            reference,
            dtype=dtype,
            num_layers=config.num_layers,
        )
        for result in results
    ]
    differing = [differing_requests(result, results[0]) for result in results]
    console.print(_table(results, verdicts, differing, dtype))
    for result, verdict in zip(results, verdicts, strict=True):
        console.print(f"{result.mode} and transformers: {verdict}")
    return 0 if all(verdict.agrees for verdict in verdicts) and not any(differing) else 1


def _run_with_progress(
    mode: str,
    settings: ModeSettings,
    arrivals: Sequence[Arrival],
    device: NpuDevice,
    console: Console,
    count_launches: Callable[[], int],
) -> ModeResult:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        capture = None
        if mode != "eager":
            total = len(settings.capture_sizes)
            capture = progress.add_task(f"{mode}: capture sizes", total=total)
        total = sum(arrival.request.sampling.max_tokens for arrival in arrivals)
        tokens = progress.add_task(f"{mode}: tokens", total=total)

        def on_captured(_size: int, done: int, _total: int) -> None:
            if capture is not None:
                progress.update(capture, completed=done)

        return run_mode(
            mode,
            settings,
            arrivals,
            device=device,
            count_launches=count_launches,
            on_captured=on_captured,
            on_step=lambda step: progress.advance(tokens, step.num_sequences),
        )


def _table(
    results: Sequence[ModeResult],
    verdicts: Sequence[Verdict],
    differing: Sequence[Sequence[int]],
    dtype: torch.dtype,
) -> Table:
    table = Table(
        title=f"Qwen3 on simulated CANN, {dtype}, {len(results[0].outputs)} requests",
        caption=(
            "us and launches: median of the decode steps, on the host, while the kernels compute "
            "on the same CPU; update: the part of a step that rewrites attention's lengths"
        ),
    )
    table.add_column("mode")
    numbers = ("tokens", "decode steps", "host us/step", "launches/step", "graphs", "fusions")
    for name in (*numbers, "update us/step"):
        table.add_column(name, justify="right")
    table.add_column("transformers")
    table.add_column("eager")
    for result, verdict, requests in zip(results, verdicts, differing, strict=True):
        table.add_row(
            result.mode,
            str(result.num_tokens),
            str(len(result.step_us)),
            f"{result.median_step_us:.0f}",
            f"{result.median_launches:.0f}",
            str(result.num_graphs),
            str(result.num_fusions),
            f"{result.median_update_us:.0f}" if result.mode == "full" else "-",
            _coloured("agrees" if verdict.agrees else "DIFFERS", good=verdict.agrees),
            _coloured("DIFFERS" if requests else "bitwise equal", good=not requests)
            if result is not results[0]
            else "-",
        )
    return table


def _coloured(text: str, *, good: bool) -> str:
    return f"[{'green' if good else 'red'}]{text}[/]"


def _parse(command_line: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Decode a Qwen3 model in every compile mode on simulated CANN."
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="folder of a dense Qwen3 model; default: a tiny random one"
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    return parser.parse_args(command_line)
