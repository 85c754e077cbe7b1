"""vLLM 0.30.0 and vllm-ascend 0.30.0rc2 on simulated CANN with adapters (LoRA).

Run as ``cann-sim run -- python -m engines.vllm_next.lora``. Of three sequences one has no adapter
and two have one each, of different ranks; all decode in one batch. The operators that multiply by
adapters are replaced by torch (`engines/vllm/without_device/lora_kernels.py`). `stock` is the
engine alone, `ours` has our attention update, and `control` is the engine of `ours` once more with
key lengths that are one too small. Rows go to build/engines/vllm-next-lora.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.load.adapter_load import ADAPTERS, adapter_of, write_adapters
from engines.load.decode_load import compare_load
from engines.models.tiny_models import write_model
from engines.running.session_run import make_parser
from engines.vllm.lora import names_of
from engines.vllm.session import generate, run_session, runner_of
from engines.vllm.without_device import lora_kernels
from engines.vllm_next.session import (
    COLUMNS,
    MODES,
    is_full_step,
    measure_steps,
    measure_with_control,
    run_apart,
    start_engine,
    stock_and_ours,
    verdict,
)
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from pathlib import Path

    from engines.vllm.models import ModelVariant


def run_tokens(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    kept = lora_kernels.declare()
    llm = start_engine(
        variant,
        checkpoint,
        stand_ins.install,
        compilation_config={"cudagraph_specialize_lora": False},
        enable_lora=True,
        max_loras=len(ADAPTERS),
        max_lora_rank=max(ADAPTERS.values()),
    )
    from vllm.lora.request import LoRARequest

    adapters = {
        name: LoRARequest(name, number, str(adapter_of(checkpoint, name)))
        for number, name in enumerate(ADAPTERS, start=1)
    }
    given = [None if name is None else adapters[name] for name in names_of(count)]
    measure = functools.partial(
        measure_steps,
        llm,
        variant,
        lambda: {"tokens": generate(llm, *compare_load(count), given)},
        step=(runner_of(llm), "_model_forward"),
        is_full=is_full_step,
    )
    rows = measure_with_control(llm, measure)
    del kept
    return rows


def write_checkpoints(variant: ModelVariant, checkpoint: Path) -> None:
    """Write the model of a variant and its adapters."""
    write_model(variant, checkpoint)
    write_adapters(checkpoint)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-lora", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    variants = stock_and_ours(MODES, model="Qwen3, adapters", num_layers=options.layers)
    run = functools.partial(run_apart, load=run_tokens, write=write_checkpoints)
    return run_session(variants, options, run, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
