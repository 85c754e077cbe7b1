"""The load with adapters (LoRA): of three sequences one has none and two have one each.

The two are of different ranks. transformers judges tokens with the adapter added into the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load, judge_tokens

if TYPE_CHECKING:
    from pathlib import Path

ADAPTERS = {"first": 8, "second": 4}
"""Names and ranks."""


def adapter_names(count: int, without: int = 0) -> list[str | None]:
    """Return the adapter of each sequence; so many at the end have none."""
    names = [None, *ADAPTERS]
    drawn = [names[number % len(names)] for number in range(count - without)]
    return [*drawn, *[None] * without]


def adapter_of(checkpoint: Path, name: str) -> Path:
    """Return where an adapter of a model is."""
    return checkpoint.with_name(f"{checkpoint.name}-{name}")


def merged_of(checkpoint: Path, name: str) -> Path:
    """Return where the model with an adapter added is."""
    return checkpoint.with_name(f"{checkpoint.name}-with-{name}")


def write_adapters(checkpoint: Path) -> None:
    """Write all adapters of a model, and the model with each of them added."""
    from engines.models.tiny_lora import write_adapter

    for seed, (name, rank) in enumerate(ADAPTERS.items()):
        merged = merged_of(checkpoint, name)
        write_adapter(checkpoint, adapter_of(checkpoint, name), merged, rank=rank, seed=seed)


def judge_rows(
    rows: list[dict[str, Any]], checkpoint: Path, given: list[str | None]
) -> list[dict[str, Any]]:
    """Let transformers judge the tokens of each row, using the adapter of each sequence."""
    prompts, _ = compare_load(len(given))
    models = {None: checkpoint, **{name: merged_of(checkpoint, name) for name in ADAPTERS}}
    own = {name: [at for at, each in enumerate(given) if each == name] for name in models}
    judged = []
    for row in rows:
        if "tokens" not in row:
            continue
        found = [
            judge_tokens(
                models[name], [prompts[at] for at in places], [row["tokens"][at] for at in places]
            )
            for name, places in own.items()
        ]
        figures = {
            "likeliest_tokens": sum(likeliest for likeliest, _ in found),
            "worst_token": max(worst for _, worst in found),
        }
        judged.append({"judged": row["name"], "dtype": row["dtype"], **figures})
    return judged
