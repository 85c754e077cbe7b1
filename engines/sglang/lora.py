"""SGLang on simulated CANN with adapters (LoRA): its attention update and ours.

Run as ``cann-sim run -- python -m engines.sglang.lora``. Of three sequences one has no adapter and
two have one each, of the same rank or of another; all decode in one batch. The two operators that
multiply by them are stood for by torch (`engines/sglang/without_device/lora_kernels.py`). Variants
are those of engines/sglang/models.py. transformers judges each token with the adapter added into
the weights. Rows go to build/engines/sglang-lora.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.adapter_load import (
    ADAPTERS,
    adapter_names,
    adapter_of,
    judge_rows,
    write_adapters,
)
from engines.models.tiny_models import write_model
from engines.running.session_run import make_parser
from engines.sglang.models import (
    ModelVariant,
    checkpoint_of,
    choose_variants,
    described,
    run_apart,
    run_session,
)
from engines.sglang.session import run_load

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

RUNS = (("Qwen3, adapters", "bfloat16"),)


def run_variant(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run a variant in this process and those of its engine, and return its rows."""
    paths = {name: str(adapter_of(checkpoint, name)) for name in ADAPTERS}
    rows = run_load(
        variant,
        checkpoint,
        count,
        given={"lora_path": adapter_names(count)},
        lora_paths=paths,
        max_loras_per_batch=1 + len(ADAPTERS),
        lora_backend="ascend",
        **variant.options(),
    )
    return [row | described(variant) | {"name": row["name"]} for row in rows]


def run_apart_with_adapters(
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
        write_adapters(checkpoint)
    if variant.name == "transformers":
        return judge_rows(rows, checkpoint, adapter_names(options.sequences))
    return run_apart(variant, number, rows, options, folder)


if __name__ == "__main__":
    sys.exit(
        run_session(
            __spec__.name,
            make_parser("sglang-lora", __doc__),
            functools.partial(choose_variants, RUNS),
            run=run_variant,
            apart=run_apart_with_adapters,
        )
    )
