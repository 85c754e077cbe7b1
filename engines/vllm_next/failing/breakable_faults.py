"""Faults in breakable graphs of vllm-ascend's newest release: how its captures end, and how ours.

Run as ``cann-sim run -- python -m engines.vllm_next.failing.breakable_faults``. Each fault is put
into an engine before its captures, or after them. `stock` is the engine alone, `graphs` has our
captures. Ours must end with the named error, whose message says where. If nothing is raised, the
tokens are compared with those of the same engine without its graphs. Rows go to
build/engines/vllm-next-breakable-faults.json.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.forked_variant import run_forked
from engines.running.session_rows import DESCRIBED, find_errors
from engines.running.session_run import make_parser
from engines.vllm.models import ModelVariant
from engines.vllm.session import describe, generate, run_session, runner_of
from engines.vllm_next.breaking.breakable import KEYS, PIECEWISE
from engines.vllm_next.session import start_engine
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    import torch

COLUMNS = {**DESCRIBED, "ended": ""}
ATTENTION = r"unified_attention_with_output\('model\.layers\.0\.self_attn\.attn'\)"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault in an engine.

    Attributes:
        damage: Puts it into a model runner.
        captures: Whether the engine captures its graphs with it.
        error: The error of ours.
        says: What its message matches.
    """

    damage: Callable[[Any], None]
    captures: bool
    error: str
    says: str


def read_on_host(runner: Any) -> None:
    """Let work between two attentions read a value on the host, without a break there."""
    layer = runner.get_model().model.layers[0].mlp
    run = layer.forward

    def forward(x: torch.Tensor) -> Any:
        return run(x * (1 + 0 * int(x[0, 0].item())))

    layer.forward = forward


def keep_memory(runner: Any) -> None:
    """Let attention keep memory that it makes, which captured work reads."""
    layer = runner.get_model().model.layers[0]
    attend, run, kept = layer.self_attn.attn.impl.forward, layer.mlp.forward, []

    def attention(*args: Any, **kwargs: Any) -> Any:
        kept[:] = [args[1].float().mean()]
        return attend(*args, **kwargs)

    def forward(x: torch.Tensor) -> Any:
        return run(x + kept[0].to(x.dtype))

    layer.self_attn.attn.impl.forward, layer.mlp.forward = attention, forward


def move_input(runner: Any) -> None:
    """Let steps have their tokens elsewhere than at capture."""
    run = runner._model_forward

    def forward(count: int, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        moved = tokens.clone()
        tokens.zero_()
        return run(count, moved, *args, **kwargs)

    runner._model_forward = forward


def replace_weight(runner: Any) -> None:
    """Put a weight on other memory, with other values."""
    layer = runner.get_model().model.layers[0].mlp.down_proj
    layer.weight.data = -layer.weight.data


FAULTS = {
    "a forgotten break": Fault(
        damage=read_on_host,
        captures=True,
        error="IllegalWhileCapturingError",
        says=rf"segment 2 \(behind {ATTENTION}\) of 'model'",
    ),
    "memory of a break": Fault(
        damage=keep_memory, captures=True, error="EagerSegmentError", says=f"that {ATTENTION} made"
    ),
    "a moved input": Fault(
        damage=move_input, captures=False, error="InputAddressError", says="input_ids"
    ),
    "a replaced weight": Fault(
        damage=replace_weight, captures=False, error="ReplacedWeightError", says="down_proj"
    ),
}


def run_fault(
    name: str, variant: ModelVariant, checkpoint: Path, count: int
) -> list[dict[str, Any]]:
    """Put a fault into an engine and serve; return a row that says how that ended."""
    fault, load = FAULTS[name], compare_load(count)
    try:
        llm = start_engine(variant, checkpoint, functools.partial(install, fault))
        runner = runner_of(llm)
        if not fault.captures:
            fault.damage(runner)
        tokens = generate(llm, *load)
    except Exception as error:
        ended = f"{type(error).__name__}: {error}"
        is_named = type(error).__name__ == fault.error and bool(re.search(fault.says, str(error)))
    else:
        runner.model = runner.get_model()
        both = zip(tokens, generate(llm, *load), strict=True)
        pairs = [pair for own, other in both for pair in zip(own, other, strict=True)]
        equal, is_named = sum(own == other for own, other in pairs), False
        ended = f"no error; {equal} of {len(pairs)} tokens are those without graphs"
    return [{**described(variant, name), "ended": ended, "is_named": is_named}]


def install(fault: Fault) -> None:
    """Replace what the simulator cannot run; put a fault of captures in before them."""
    stand_ins.install()
    runner = importlib.import_module("vllm_ascend.worker.model_runner_v1").NPUModelRunner
    capture = runner.capture_model

    def capture_damaged(self: Any) -> Any:
        fault.damage(self)
        return capture(self)

    if fault.captures:
        runner.capture_model = capture_damaged


def described(variant: ModelVariant, fault: str) -> dict[str, Any]:
    """Return the first fields of a row."""
    return {**describe(variant), "dtype": fault, "mode": variant.mode}


def run_variant(
    variant: ModelVariant,
    number: int,
    _rows: list[dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
) -> list[dict[str, Any]]:
    """Run each fault in a process of its own."""
    from engines.models.tiny_models import write_model

    checkpoint, rows = folder / f"checkpoint-{number}", []
    write_model(variant, checkpoint)
    for place, name in enumerate(options.faults):
        log = options.out.with_name(f"{options.out.stem}-{number}-{place}.log")
        call = functools.partial(run_fault, name, variant, checkpoint, options.sequences)
        rows += run_forked(call, described(variant, name), log)
    return rows


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures; empty if all is right."""
    return find_errors(rows) + [
        f"{row['dtype']}: expected {FAULTS[row['dtype']].error}, found {row['ended']}"
        for row in rows
        if row["name"] == "graphs" and not row.get("is_named", True)
    ]


def main() -> int:
    """Run all faults; return 1 if one did not end as it should."""
    parser = make_parser("vllm-next-breakable-faults", __doc__)
    parser.set_defaults(layers=2, sequences=8)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=FAULTS)
    options = parser.parse_args()
    variants = [
        ModelVariant(
            name=name,
            dtype="bfloat16",
            num_layers=options.layers,
            mode=PIECEWISE,
            model="Qwen3",
            **KEYS[name][1],
        )
        for name in ("stock", "graphs")
    ]
    environment = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
    return run_session(
        variants, options, run_variant, COLUMNS, verdict, prepare=stand_ins.prepare, **environment
    )


if __name__ == "__main__":
    sys.exit(main())
