"""The text of the generated headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from documented_arguments.argument import MOST_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from documented_arguments.argument import Argument

# In the order in which a reader looks for them.
_ORDER: Final = (
    *("FLOAT16", "BF16", "FLOAT", "DOUBLE"),
    *("BOOL", "INT4", "INT8", "INT16", "INT32", "INT64"),
    *("UINT1", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("COMPLEX32", "COMPLEX64", "COMPLEX128"),
)


def render(comment: str, operators: Mapping[str, Iterable[Argument]]) -> str:
    """Return a header with one `CANN_SIM_DOCUMENTED` for each operator, sorted by name."""
    lines = [f"// {line}" for line in comment.splitlines()]
    for operator in sorted(operators):
        rows = ",\n".join(f"    {_row(argument)}" for argument in operators[operator])
        lines.append(f"CANN_SIM_DOCUMENTED({operator},\n{rows})")
    return "\n".join(lines) + "\n"


def _row(argument: Argument) -> str:
    types = " | ".join(name for name in _ORDER if name in argument.data_types) or "0"
    flags = {"kPlain": argument.plain, "kNz": argument.nz, "kStrided": argument.strided}
    layouts = " | ".join(name for name, given in flags.items() if given)
    return f'{{"{argument.name}", {types}, {_ranks(argument.ranks)}, {layouts}}}'


def _ranks(ranks: frozenset[int]) -> str:
    parts = []
    for rank in range(MOST_DIMENSIONS + 1):
        if rank in ranks and rank - 1 not in ranks:
            last = next(r for r in range(rank, MOST_DIMENSIONS + 2) if r + 1 not in ranks)
            parts.append(f"Ranks({rank}, {last})")
    return " | ".join(parts)
