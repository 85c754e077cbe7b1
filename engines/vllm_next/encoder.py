"""vLLM 0.30.0 and vllm-ascend 0.30.0rc2 on simulated CANN with graphs of a vision encoder.

Run as ``cann-sim run -- python -m engines.vllm_next.encoder``. A Qwen3-VL answers prompts with two
images each; its encoder runs in graphs, one for each budget of tokens (`cudagraph_mm_encoder`).
`stock` is the engine alone, `ours` has our attention update, and `control` is the engine of `ours`
once more with images that are not told apart. Steps and waits are those of the encoder's replays.
Rows go to build/engines/vllm-next-encoder.json.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from engines.running.session_rows import (
    beside_stock,
    find_errors,
    find_unexpected,
    find_wrong_tokens,
)
from engines.running.session_run import make_parser
from engines.vllm.session import run_session, runner_of
from engines.vllm_next.session import (
    COLUMNS,
    MODES,
    generate_from,
    measure_steps,
    run_apart,
    start_engine,
    stock_and_ours,
)
from engines.vllm_next.without_device import stand_ins, vision_language

if TYPE_CHECKING:
    from pathlib import Path

    from engines.vllm.models import ModelVariant

GRAPHS = {
    "cudagraph_mm_encoder": True,
    # In tokens; the images of a batch are packed into them.
    "encoder_cudagraph_token_budgets": [16, 32, 64],
    "encoder_cudagraph_max_vision_items_per_batch": 4,
}
IMAGES = 2
# Of an image's side, in squares of 32 pixels: one token is one square.
SIDES = (1, 6)


def run_images(variant: ModelVariant, checkpoint: Path, count: int) -> list[dict[str, Any]]:
    """Run the load on an engine and return its row; with ours, also the row of the control."""
    llm = start_engine(
        variant,
        checkpoint,
        vision_language.install,
        skip_tokenizer_init=False,
        limit_mm_per_prompt={"image": IMAGES, "video": 0},
        compilation_config=GRAPHS,
    )
    manager = runner_of(llm).encoder_cudagraph_manager
    prompts, lengths = make_load(llm, count)

    def measure() -> dict[str, Any]:
        return measure_steps(
            llm,
            variant,
            lambda: dict(
                zip(("tokens", "logprobs"), generate_from(llm, prompts, lengths), strict=True)
            ),
            step=(manager, "_run_budget_graph"),
            is_full=lambda: True,
        )

    rows = [measure()]
    if variant.name == "ours":
        assert set(manager.updated) == set(GRAPHS["encoder_cudagraph_token_budgets"])
        llm.reset_mm_cache()
        llm.llm_engine.reset_encoder_cache()
        join_images(manager.model)
        rows.append(measure() | {"name": "control"})
    return rows


def make_load(llm: Any, count: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Return prompts with two images each, and how many tokens to generate after each."""
    import numpy as np
    from engines.models.tiny_qwen3_vl import SPECIAL
    from PIL import Image

    numbers = np.random.default_rng(0)
    tokenizer = llm.get_tokenizer()
    image = [
        tokenizer.convert_tokens_to_ids(SPECIAL[name])
        for name in ("vision_start", "image", "vision_end")
    ]
    prompts: list[dict[str, Any]] = []
    lengths = []
    for _ in range(count):
        images = [
            Image.fromarray(numbers.integers(0, 256, (*sides, 3), dtype=np.uint8))
            for sides in 32 * numbers.integers(*SIDES, (IMAGES, 2))
        ]
        words = [int(each) for each in numbers.integers(0, 256, numbers.integers(3, 40))]
        given = {"image": images}
        prompts.append({"prompt_token_ids": [*image * IMAGES, *words], "multi_modal_data": given})
        lengths.append(int(numbers.integers(3, 60)))
    return prompts, lengths


def join_images(model: Any) -> None:
    """Let the encoder take all images of a batch for one."""
    prepare = model.prepare_encoder_cudagraph_replay_buffers

    def joined(*given: Any, **named: Any) -> Any:
        made = prepare(*given, **named)
        made.values["cu_seqlens"][1:] = made.values["cu_seqlens"][-1].clone()
        return made

    model.prepare_encoder_cudagraph_replay_buffers = joined


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = find_errors(rows)
    for row, theirs, what in beside_stock(rows):
        wrong += find_wrong_tokens(row, what)
        if row["full_steps"] == 0:
            wrong.append(f"{what}: no graph of the encoder was replayed")
        if theirs is None or row["name"] != "ours":
            continue
        names = ("preempted", "full_steps", "waits_in_full_steps", "replays", "task_updates")
        expected = {name: theirs[name] for name in names}
        wrong += find_unexpected(row, what, expected | {"equal_logprobs": row["num_tokens"]})
    return wrong


def write_model(variant: ModelVariant, folder: Path) -> None:
    """Write the checkpoint of a variant."""
    import torch
    from engines.models import tiny_qwen3_vl

    dtype = getattr(torch, variant.dtype)
    tiny_qwen3_vl.write_checkpoint(folder, num_layers=variant.num_layers, dtype=dtype)


def main() -> int:
    """Run all variants; return 1 if something is wrong."""
    parser = make_parser("vllm-next-encoder", __doc__)
    parser.set_defaults(layers=2)
    options = parser.parse_args()
    variants = stock_and_ours(MODES[:1], model="Qwen3-VL", num_layers=options.layers)
    run = functools.partial(run_apart, load=run_images, write=write_model)
    return run_session(variants, options, run, COLUMNS, verdict, prepare=stand_ins.prepare)


if __name__ == "__main__":
    sys.exit(main())
