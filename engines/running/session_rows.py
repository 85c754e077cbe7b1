"""The rows of an engine's session: comparisons between them, errors, and a table.

A row is one run of a variant. Rows of tokens have ``tokens``, those of time ``update_us``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load, judge_tokens
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# How far below the likeliest token rounding may leave the chosen one, in standard deviations of
# the logits. Seen were 0.045 and 0.001, and 1.2 with key lengths that are one too small.
WORST_TOKEN = {"bfloat16": 0.1, "float16": 0.01}
# Targets for the ratio of the engine's host time of updates to ours. The tables show them beside
# what was found; a loaded machine may miss them, so no session fails for its times.
TARGETS = {"ours, native": 8.0, "ours, kernels": 4.0}
DESCRIBED = {"name": "", "dtype": "", "num_layers": "", "sequences": ""}
TOKEN_COLUMNS = {"likeliest_tokens": "", "worst_token": ".3f", "num_tokens": "", "equal_tokens": ""}
TIME_COLUMNS = {
    **DESCRIBED,
    "step_us": ".0f",
    "update_us": ".0f",
    "target": ".0f",
    "below_stock": ".1f",
}


def judgements(
    rows: list[dict[str, Any]], dtype: str, checkpoint: Path, count: int
) -> list[dict[str, Any]]:
    """Judge the tokens of each row of a dtype by transformers.

    Args:
        rows: Rows of the previous variants.
        dtype: Dtype of the model.
        checkpoint: Checkpoint of the model.
        count: Number of sequences.
    """
    prompts, _ = compare_load(count)
    judged = []
    for row in rows:
        if "tokens" in row and row["dtype"] == dtype:
            likeliest, worst = judge_tokens(checkpoint, prompts, row["tokens"])
            figures = {"likeliest_tokens": likeliest, "worst_token": worst}
            judged.append({"judged": row["name"], "dtype": dtype, **figures})
    return judged


def take_judgements(rows: list[dict[str, Any]]) -> None:
    """Add the judgement of a row's tokens to the row."""
    for judgement in [row for row in rows if "judged" in row]:
        rows.remove(judgement)
        (judged,) = (
            row
            for row in rows
            if (row.get("name"), row["dtype"]) == (judgement["judged"], judgement["dtype"])
            and "tokens" in row
        )
        judged |= {name: judgement[name] for name in ("likeliest_tokens", "worst_token")}


def compare_tokens(rows: list[dict[str, Any]]) -> None:
    """Add to each row how many tokens it shares with the stock engine, in order and place.

    A row that names another variant in ``compared_with`` is compared with that one.
    """
    given = {(row["name"], row["dtype"]): row["tokens"] for row in rows if "tokens" in row}
    for row in rows:
        other = given.get((row.get("compared_with", "stock"), row["dtype"]))
        if "tokens" not in row or other is None:
            continue
        pairs = [
            (own, theirs)
            for a, b in zip(row["tokens"], other, strict=True)
            for own, theirs in zip(a, b, strict=True)
        ]
        row["num_tokens"] = len(pairs)
        row["equal_tokens"] = sum(own == theirs for own, theirs in pairs)


def compare_times(rows: list[dict[str, Any]]) -> None:
    """Add to each timed row the ratio of the stock engine's update time to its own."""

    def kind(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["dtype"], row["num_layers"], row["sequences"]

    timed = [row for row in rows if "update_us" in row]
    stock = {kind(row): row["update_us"] for row in timed if row["name"] == "stock"}
    for row in timed:
        theirs = stock.get(kind(row))
        if theirs is not None:
            row["below_stock"] = theirs / row["update_us"]
        if row["name"] in TARGETS:
            row["target"] = TARGETS[row["name"]]


def find_errors(rows: list[dict[str, Any]]) -> list[str]:
    """Return the errors that ended runs."""
    return [f"{row['name']}, {row['dtype']}: {row['error']}" for row in rows if "error" in row]


def beside_stock(
    rows: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None, str]]:
    """Yield each row of tokens, the stock engine's row if there is one, and its name."""
    stock = {row["dtype"]: row for row in rows if row["name"] == "stock" and "tokens" in row}
    for row in rows:
        if "tokens" in row:
            yield row, stock.get(row["dtype"]), f"{row['name']}, {row['dtype']}"


def find_wrong_tokens(row: dict[str, Any], what: str) -> list[str]:
    """Return the errors in the tokens of a row, which were compared with the stock engine's."""
    if "equal_tokens" not in row:
        return [f"{what}: there is no stock engine to compare with"]
    if (row["equal_tokens"] == row["num_tokens"]) == (row["name"] == "control"):
        equal = f"{row['equal_tokens']} of {row['num_tokens']}"
        return [f"{what}: {equal} tokens are those of stock"]
    return []


def find_unexpected(row: dict[str, Any], what: str, expected: Mapping[str, object]) -> list[str]:
    """Return the figures of a row that differ from the expected ones."""
    return [
        f"{what}: expected {value} {name}, found {row[name]}"
        for name, value in expected.items()
        if row[name] != value
    ]


def find_wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Return the failures in rows of any engine: errors, tokens, and sides that were not timed."""
    wrong = find_errors(rows)
    timed = {row["name"] for row in rows if "update_us" in row}
    wrong += [f"{name}: no row of time" for name in TARGETS if timed and name not in timed]
    for row in rows:
        is_control = row["name"] == "control"
        if "tokens" not in row:
            continue
        what, most = f"{row['name']}, {row['dtype']}", WORST_TOKEN[row["dtype"]]
        if "worst_token" in row and (row["worst_token"] > most) != is_control:
            worst = f"lies {row['worst_token']:.3f} below the likeliest (rule: {most})"
            wrong.append(f"{what}: the worst token {worst}")
        wrong += find_wrong_tokens(row, what)
    return wrong


def print_table(rows: list[dict[str, Any]], columns: dict[str, str], title: str) -> None:
    """Print the rows that have something in the last column.

    Args:
        rows: Of the session.
        columns: Keys of a row, with their format.
        title: Above the table.
    """
    table = Table(title=title)
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        if list(columns)[-1] in row:
            table.add_row(
                *(format(row[key], form) if key in row else "-" for key, form in columns.items())
            )
    Console(width=160).print(table)


def print_profile(rows: list[dict[str, Any]], title: str) -> None:
    """Print the parts of a step, in microseconds, for each timed row; parts may be nested."""
    timed = [row for row in rows if "parts_us" in row]
    parts = sorted({part for row in timed for part in row["parts_us"]})
    parts.sort(key=lambda part: -max(row["parts_us"].get(part, 0.0) for row in timed))
    shown = [{**row, **dict.fromkeys(parts, 0.0), **row["parts_us"]} for row in timed]
    print_table(shown, {**DESCRIBED, **dict.fromkeys(parts, ".0f")}, title)
