"""Decode a Qwen3 model in every mode on simulated CANN, and compare the results.

Run by ``./nox -s demo``; options after ``--``. Without ``--checkpoint`` a tiny random model is
written first. The exit status is 0 only if every verdict is good.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import cann_sim

# Before torch is imported: it may load torch_npu by itself, which needs the device libraries.
cann_sim.activate()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from npu_graph_runtime import NpuDevice  # noqa: E402
from qwen3_engine import Qwen3Config, ReferenceModel, compare_with_reference  # noqa: E402
from qwen3_engine.kv_cache import num_blocks_for  # noqa: E402
from qwen3_engine.mode_run import (  # noqa: E402
    ModeResult,
    ModeSettings,
    differing_requests,
    run_mode,
)
from qwen3_engine.tiny_checkpoint import write_tiny_checkpoint  # noqa: E402
from qwen3_engine.workload import mixed_arrivals  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qwen3_engine.workload import Arrival

MODES = ("eager", "full", "piecewise")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

# From one token to several blocks of the cache, on both sides of a block's edge.
PROMPT_LENGTHS = (5, 127, 300, 1, 64, 128, 17, 200, 129, 33, 90, 2)
OUTPUT_TOKENS = (40, 72, 24, 56)
STEPS_BETWEEN_ARRIVALS = 16
CAPTURE_SIZES = (1, 2, 4, 8)


def main() -> int:
    """Run all modes, print the table, and return the exit status."""
    arguments = _parse()
    console = Console()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.checkpoint
        if folder is None:
            folder = write_tiny_checkpoint(Path(temporary))
            console.print("Wrote a tiny random Qwen3 checkpoint.")
        return _run(folder, DTYPES[arguments.dtype], console)


def _run(folder: Path, dtype: torch.dtype, console: Console) -> int:
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
    results = [_run_with_progress(mode, settings, arrivals, device, console) for mode in MODES]
    console.print("Comparing with transformers on the CPU, in float32, under teacher forcing.")
    reference = ReferenceModel(folder)
    greedy = [arrival.request.sampling.temperature == 0 for arrival in arrivals]
    verdicts = [
        [
            *_reference_verdict(result, greedy, reference, settings, config.num_layers),
            *_eager_verdict(result, results[0]),
        ]
        for result in results
    ]
    console.print(_table(results, verdicts, dtype))
    return 0 if all(good for row in verdicts for good, _ in row) else 1


def _run_with_progress(
    mode: str,
    settings: ModeSettings,
    arrivals: Sequence[Arrival],
    device: NpuDevice,
    console: Console,
) -> ModeResult:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        capture = progress.add_task(
            f"{mode}: capture", total=0 if mode == "eager" else len(settings.capture_sizes)
        )
        total = sum(arrival.request.sampling.max_tokens for arrival in arrivals)
        decode = progress.add_task(f"{mode}: tokens", total=total)
        return run_mode(
            mode,
            settings,
            arrivals,
            device=device,
            count_launches=lambda: cann_sim.counters().launches,
            on_captured=lambda _size, done, _total: progress.update(capture, completed=done),
            on_step=lambda step: progress.advance(decode, step.num_sequences),
        )


def _reference_verdict(
    result: ModeResult,
    greedy: Sequence[bool],
    reference: ReferenceModel,
    settings: ModeSettings,
    num_layers: int,
) -> list[tuple[bool, str]]:
    outputs = [
        output for output, is_greedy in zip(result.outputs, greedy, strict=True) if is_greedy
    ]
    assert settings.dtype is not None
    verdict = compare_with_reference(
        outputs, reference, dtype=settings.dtype, num_layers=num_layers
    )
    return [(verdict.agrees, str(verdict))]


def _eager_verdict(result: ModeResult, eager: ModeResult) -> list[tuple[bool, str]]:
    if result is eager:
        return []
    differing = differing_requests(result, eager)
    text = f"DIFFERS from eager in requests {differing}" if differing else "bitwise equal to eager"
    return [(not differing, text)]


def _table(
    results: Sequence[ModeResult], verdicts: Sequence[list[tuple[bool, str]]], dtype: torch.dtype
) -> Table:
    table = Table(
        title=f"Qwen3 on simulated CANN, {dtype}, {len(results[0].outputs)} requests",
        caption=(
            "host us and launches: median of the decode steps, kernels computed on this CPU; "
            "update us: the part of a step that rewrites attention's lengths"
        ),
    )
    numbers = ("tokens", "decode steps", "host us/step", "launches/step", "graphs", "fusions")
    table.add_column("mode")
    for name in (*numbers, "update us/step"):
        table.add_column(name, justify="right")
    table.add_column("verdicts")
    for result, row in zip(results, verdicts, strict=True):
        table.add_row(
            result.mode,
            str(result.num_tokens),
            str(len(result.step_us)),
            f"{result.median_step_us:.0f}",
            f"{result.median_launches:.0f}",
            str(result.num_graphs),
            str(result.num_fusions),
            f"{result.median_update_us:.0f}" if result.mode == "full" else "-",
            "\n".join(f"[{'green' if good else 'red'}]{text}[/]" for good, text in row),
        )
    return table


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--checkpoint", type=Path, help="folder of a dense Qwen3 model; default: a tiny random one"
    )
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
