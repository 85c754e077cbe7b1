"""A session from its options to its verdict: the same for every engine."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.running.session_rows import (
    TIME_COLUMNS,
    compare_times,
    compare_tokens,
    print_profile,
    print_table,
    take_judgements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]


def make_parser(engine: str, description: str | None) -> argparse.ArgumentParser:
    """Return the options that every session has.

    Args:
        engine: In the name of the file of rows.
        description: Of the script.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--timed-layers", type=int, nargs="*", default=[28, 64])
    parser.add_argument("--timed-sequences", type=int, nargs="*", default=[4, 16, 64, 256])
    out = ROOT / "build" / "engines" / f"{engine}.json"
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--only", nargs="*", help="names of variants: stock, ours, turns, ...")
    return parser


def run_variants(
    variants: Iterable[Any],
    options: argparse.Namespace,
    run_apart: Callable[..., list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Run one variant after the other, keep the rows in the file, and return them.

    Args:
        variants: Those named by `options` are run.
        options: Of the session.
        run_apart: Runs one; gets it, its number, the rows before, the options and a folder.
    """
    options.out.parent.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in variants if not options.only or each.name in options.only]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, variant in enumerate(chosen):
            begin = time.monotonic()
            rows += run_apart(variant, number, rows, options, Path(folder))
            take_judgements(rows)
            compare_tokens(rows)
            compare_times(rows)
            options.out.write_text(json.dumps(rows, indent=1))
            what = f"{variant.name}, {variant.dtype}, {variant.num_layers} layers"
            print(f"{what}: {time.monotonic() - begin:.0f} s", flush=True)
    return rows


def conclude(
    rows: list[dict[str, Any]], columns: dict[str, str], engine: str, wrong: list[str]
) -> int:
    """Print tables and failures; return the exit status.

    Args:
        rows: Rows of the session.
        columns: Columns of the table of tokens.
        engine: Name and version.
        wrong: The failures.
    """
    import torch
    import torch_npu

    versions = f"torch {torch.__version__}, torch_npu {torch_npu.__version__}"
    title = f"{engine} on simulated CANN, {versions}"
    print_table(rows, columns, title)
    print_table(rows, TIME_COLUMNS, title)
    print_profile(rows, "host time of a step and of its parts, us")
    print("\n".join(wrong) or "every variant is right")
    return 1 if wrong else 0
