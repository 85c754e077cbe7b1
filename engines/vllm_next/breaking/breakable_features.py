"""vLLM's breakable graphs with adapters, drafts and several ranks: stock and ours, on one load.

Run as ``cann-sim run -- python -m engines.vllm_next.breaking.breakable_features``. As in
engines/vllm_next/breaking/breakable.py, `stock` is the engine alone in mode PIECEWISE, where
attention runs eagerly. `both` has our captures of segments and our attention update in mode
FULL_AND_PIECEWISE, and `control` is the engine of `both` once more with key lengths that are one
too small. Rows go to build/engines/vllm-next-breakable-features.json.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from engines.running.session_rows import beside_stock, find_errors, find_wrong_tokens
from engines.running.session_run import make_parser
from engines.vllm import drafts as stable_drafts
from engines.vllm.graphs import PLUGINS
from engines.vllm.models import COLUMNS, ModelVariant
from engines.vllm.ranks import LONGEST_SECONDS, RANKS
from engines.vllm.session import run_session
from engines.vllm_next import drafts, idle_rank, lora, ranks, session
from engines.vllm_next.breaking.breakable import BOTH_MODES, KEYS, SIZES
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    Load = Callable[[ModelVariant, Path, int], list[dict[str, Any]]]
    Write = Callable[[ModelVariant, Path], None]

IDLE = "Qwen3-MoE, data parallel"
DRAFTS = {f"{model}, drafts by {method}": method for method, model in stable_drafts.METHODS.items()}
MODELS = ("Qwen3, adapters", *DRAFTS, "Qwen3", "Qwen3, DCP", "DeepSeek", "DeepSeek, DCP", IDLE)


def make_load(model: str) -> tuple[Load, Write]:
    """Return what runs the load of a model, and what writes its checkpoint."""
    if model == "Qwen3, adapters":
        return lora.run_tokens, lora.write_checkpoints
    if model in DRAFTS:
        return drafts.run_tokens, stable_drafts.write_checkpoints
    if model == IDLE:
        return idle_rank.run_tokens, session.write_model
    return ranks.run_tokens, session.write_model


def run_variant(
    variant: ModelVariant,
    number: int,
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run a variant in a process of its own; the rows of all modes of a model are compared."""
    load, write = make_load(variant.model)
    limit = LONGEST_SECONDS if variant.ranks > 1 or variant.model == IDLE else None
    made = session.run_apart(
        variant, number, rows, options, folder, load=load, write=write, limit=limit
    )
    for row in made:
        name = "both" if row["name"] == "ours" else row["name"]
        row |= {"name": name, "dtype": row["model"]}
    return made


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, stock, what in beside_stock(rows):
        if stock is None or row["name"] == "stock":
            continue
        if not drafts.is_moved(row, stock):
            wrong += find_wrong_tokens(row, what)
        if row["full_steps"] == 0:
            wrong.append(f"{what}: no step replayed a whole graph")
        if row["name"] == "both":
            if row.get("drafts") != stock.get("drafts"):
                wrong.append(f"{what}: its drafts are not those of stock")
            # Several workers wait for their tokens in threads of their own, during other steps.
            if row["waits_in_full_steps"] and row["ranks"] == 1:
                wrong.append(f"{what}: {row['waits_in_full_steps']} waits in FULL steps")
    return wrong


def choose_variants(options: argparse.Namespace) -> list[ModelVariant]:
    """Return the variants selected by the options."""
    ours = (BOTH_MODES, KEYS["both"][1])
    return [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=stable_drafts.LAYERS.get(DRAFTS.get(model, ""), 2),
            mode=mode,
            model=model,
            ranks=1 if model in ("Qwen3, adapters", IDLE, *DRAFTS) else RANKS,
            decode_parts=RANKS if model.endswith("DCP") else 1,
            capture_sizes=(*stable_drafts.SIZES, *SIZES[-3:]) if model in DRAFTS else SIZES,
            **key,
        )
        for model in options.models
        for name, (mode, key) in {"stock": KEYS["stock"], "ours": ours}.items()
    ]


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-breakable-features", __doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    environment = {
        "VLLM_USE_BREAKABLE_CUDAGRAPH": "1",
        "CANN_SIM_DEVICES": str(RANKS),
        "VLLM_PLUGINS": ",".join(PLUGINS),
    }
    return run_session(
        choose_variants(options),
        options,
        run_variant,
        {"accepted": "", **COLUMNS},
        verdict,
        prepare=stand_ins.prepare,
        **environment,
    )


if __name__ == "__main__":
    sys.exit(main())
