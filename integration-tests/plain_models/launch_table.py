"""docs/plain-models.md, made of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import transformers

from plain_models.raised_decoder import MODES
from plain_models.tiny_decoders import NUM_LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plain_models.raised_decoder import RaisedDecoder


def table_of(rows: Sequence[RaisedDecoder]) -> str:
    """Return the document."""
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: Sequence[RaisedDecoder]) -> Iterator[str]:
    version = ".".join(transformers.__version__.split(".")[:2])
    names = ", ".join(f"`{mode.value}`" for mode in MODES)
    yield "# Models in plain torch"
    yield ""
    yield (
        f"This page shows unmodified decoders of transformers {version}, {NUM_LAYERS} layers with "
        "random weights in bfloat16, "
        'compiled by `npu_compile.compile_model(model, {"fusions": "raise", "mode": ...})` on '
        "simulated CANN. `./nox -s integration -- integration-tests/plain_models "
        "--every-mode --write-launches` generates it."
    )
    yield ""
    yield (
        "Launches are the operators that the device runs for one step: of the unmodified model, "
        "with the default pipeline, which only fuses operators of torch_npu, and with raising. "
        "Under a compiler, transformers always builds the attention mask, some 16 launches that it "
        "omits in an eager step. The default pipeline, which finds little to fuse in these "
        "models, therefore has more launches than the unmodified model. In each of "
        f"the modes {names}, replays on new tokens are bitwise equal to eager runs of the compiled "
        "model. Its logits are those of the model in float32, within the accumulated rounding of "
        "fused kernels. Piecewise modes are split at attention, which raising has made an "
        "operator. "
        "Experts of Qwen3-MoE run as `batched_mm`, because the other implementations of "
        "transformers read on the host how many tokens each expert has, which cannot be captured."
    )
    yield ""
    yield "| model | unmodified | default | raise | fewer | graphs, piecewise |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.kind} | {row.launches} | {row.fused} | {row.raised} | "
            f"{row.launches / row.raised:.1f}x | {row.graphs['piecewise']} |"
        )
