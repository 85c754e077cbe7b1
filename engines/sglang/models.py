"""SGLang on simulated CANN with other models than a dense Qwen3: its attention update and ours.

Run as ``cann-sim run -- python -m engines.sglang.models``. One model is a Qwen3-MoE, one
DeepSeek-V3, whose attention is latent (MLA), also with experts, and one a Qwen3 whose linear layers
are quantised as ModelSlim does it, by scales found on the load or token by token. `stock` is the
engine without this repository's plugin, `ours` has our attention update, `captured` also graphs
that npu-graph-runtime captured, `control` is the engine of `ours` once more, with key lengths that
are one too small. transformers judges each token, where it can read the checkpoint. Rows go to
build/engines/sglang-models.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import signal
import sys
from typing import TYPE_CHECKING, Any

from engines.load.model_judgements import find_unlikely
from engines.models.tiny_models import scheme_of, write_model
from engines.running.process_group import rows_of_variant, run_given
from engines.running.session_rows import beside_stock, find_errors, find_wrong_tokens, judgements
from engines.running.session_run import conclude, make_parser, run_variants
from engines.sglang.session import COLUMNS, Variant, describe, find_other_steps, run_load
from engines.sglang.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAMES: dict[str, dict[str, Any]] = {
    "stock": {"plugins": "none"},
    "ours": {"variable": "1"},
    "captured": {"variable": '{"decode": "capture"}'},
    "transformers": {},
}
# What runs, by model and dtype.
RUNS = (
    ("Qwen3-MoE", "bfloat16"),
    ("DeepSeek", "bfloat16"),
    ("DeepSeek, experts", "bfloat16"),
    ("Qwen3, W8A8", "bfloat16"),
    ("Qwen3, W8A8_DYNAMIC", "bfloat16"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelVariant(Variant):
    """One engine to run.

    Attributes:
        model: What is run.
        ranks: Number of processes that each have a part of each layer.
    """

    model: str
    ranks: int = 1

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's processes."""
        return {**super().environment(), "CANN_SIM_DEVICES": str(self.ranks)}

    def options(self) -> dict[str, Any]:
        """Return options of the engine."""
        quantised = {"quantization": "modelslim"} if scheme_of(self.model) else {}
        return {"tp_size": self.ranks, **quantised}


def described(variant: ModelVariant) -> dict[str, Any]:
    """Return the first fields of a variant's row; rows of one model and dtype are compared."""
    ranks = f", {variant.ranks} ranks" if variant.ranks > 1 else ""
    dtype = f"{variant.model}, {variant.dtype}{ranks}"
    return {**describe(variant), "model": variant.model, "dtype": dtype, "ranks": variant.ranks}


def checkpoint_of(variant: ModelVariant, folder: Path) -> Path:
    """Return the folder for the checkpoint of a variant."""
    return folder / f"{variant.model}-{variant.dtype}".replace(", ", "-")


def run_variant(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    rows = run_load(variant, checkpoint, count, **variant.options())
    return [row | described(variant) | {"name": row["name"]} for row in rows]


def run_apart(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in new processes, which end with it, and return its rows."""
    checkpoint = checkpoint_of(variant, folder)
    if not checkpoint.exists():
        write_model(variant, checkpoint)
    if variant.name == "transformers":
        return judgements(rows, described(variant)["dtype"], checkpoint, options.sequences)
    return rows_of_variant(
        options.module,
        variant,
        checkpoint,
        options.sequences,
        environment=variant.environment(),
        described=described(variant),
        log=options.out.with_name(f"{options.out.stem}-{number}.log"),
        out=folder / f"{number}.json",
        limit=options.limit,
    )


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, _, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if scheme_of(row["model"]) is None:
            wrong += [f"{what}: {text}" for text in find_unlikely(row)]
        if ("idle" in row["model"]) > (row["idle_steps"] > 0):
            wrong.append(f"{what}: no rank was idle")
    return wrong + find_other_steps(rows)


def choose_variants(
    runs: Sequence[tuple[str, str]], options: argparse.Namespace, ranks: int = 1
) -> list[ModelVariant]:
    """Return the variants selected by the options; the judge of a model follows its variants.

    Args:
        runs: Models and their dtypes.
        options: Of the session.
        ranks: Number of processes that each have a part of each layer.
    """
    return [
        ModelVariant(
            name=name, dtype=dtype, num_layers=options.layers, model=model, ranks=ranks, **given
        )
        for number, (model, dtype) in enumerate(runs)
        for name, given in NAMES.items()
        if options.runs is None or number in options.runs
        # transformers does not read ModelSlim's checkpoints.
        if name != "transformers" or scheme_of(model) is None
    ]


def run_session(
    module: str,
    parser: argparse.ArgumentParser,
    choose: Callable[[argparse.Namespace], Sequence[ModelVariant]],
    *,
    run: Callable[..., list[dict[str, Any]]] = run_variant,
    apart: Callable[..., list[dict[str, Any]]] = run_apart,
    judge: Callable[[list[dict[str, Any]]], list[str]] = verdict,
    columns: dict[str, str] = COLUMNS,
) -> int:
    """Run the variants of a session; return 1 if something is wrong.

    Args:
        module: Name of the session.
        parser: Its options; those that all such sessions have are added.
        choose: Returns its variants.
        run: Runs one in a process of its own.
        apart: Starts that process, or lets transformers judge.
        judge: Returns the failures of the rows.
        columns: Of the table of tokens.
    """
    parser.add_argument("--runs", type=int, nargs="*", help="numbers in RUNS; all without it")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a variant")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.set_defaults(layers=2, module=module)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, ModelVariant, run)
        return 0
    stand_ins.set_environment()
    # What ends the session ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    rows = run_variants(choose(options), options, apart)
    return conclude(rows, columns, "SGLang 0.5.23", judge(rows))


if __name__ == "__main__":
    parser = make_parser("sglang-models", __doc__)
    sys.exit(run_session(__spec__.name, parser, functools.partial(choose_variants, RUNS)))
