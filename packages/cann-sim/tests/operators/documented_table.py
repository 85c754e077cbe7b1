"""The tables of the arguments that the device's operators accept, read from compiled headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import cann_sim

HEADERS = ("math", "nn", "transformer", "cv", "source")
_OPERATOR = re.compile(r"^CANN_SIM_DOCUMENTED\((\w+),\n(.*?)\)$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r'\{"(\w+)", ([^,]+), ((?:Ranks\(\d, \d\)(?: \| )?)+), ([\w |]+)\}')
_EXEMPTION = re.compile(r'^CANN_SIM_UNDOCUMENTED\((\w+), "([^"]+)"\)$', re.MULTILINE)

DATA_TYPES = {
    "FLOAT": 0,
    "FLOAT16": 1,
    "INT8": 2,
    "INT32": 3,
    "UINT8": 4,
    "INT16": 6,
    "UINT16": 7,
    "UINT32": 8,
    "INT64": 9,
    "UINT64": 10,
    "DOUBLE": 11,
    "BOOL": 12,
    "COMPLEX64": 16,
    "COMPLEX128": 17,
    "BF16": 27,
    "INT4": 29,
    "UINT1": 30,
    "COMPLEX32": 33,
    "HIFLOAT8": 34,
    "FLOAT8_E5M2": 35,
    "FLOAT8_E4M3FN": 36,
    "FLOAT8_E8M0": 37,
    "FLOAT6_E3M2": 38,
    "FLOAT6_E2M3": 39,
    "FLOAT4_E2M1": 40,
    "FLOAT4_E1M2": 41,
}
"""Numbers of aclDataType."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One tensor argument."""

    name: str
    data_types: frozenset[str]
    ranks: frozenset[int]
    layouts: frozenset[str]


def _header(name: str) -> str:
    folder = Path(cann_sim.__file__).parent / "native" / "operators" / "documented"
    return (folder / f"documented_{name}.h").read_text()


def _row(found: tuple[str, str, str, str]) -> Row:
    name, types, ranges, layouts = found
    ranks: set[int] = set()
    for least, most in re.findall(r"Ranks\((\d), (\d)\)", ranges):
        ranks |= set(range(int(least), int(most) + 1))
    return Row(
        name=name,
        data_types=frozenset(re.findall(r"[A-Z]\w+", types)),
        ranks=frozenset(ranks),
        layouts=frozenset(re.findall(r"\w+", layouts)),
    )


def documented_operators() -> dict[str, tuple[Row, ...]]:
    """Return the rows of each operator."""
    return {
        operator: tuple(_row(found) for found in _ROW.findall(rows))
        for header in HEADERS
        for operator, rows in _OPERATOR.findall(_header(header))
    }


def exempt_operators() -> dict[str, str]:
    """Return the operators without rows, and why."""
    return dict(_EXEMPTION.findall(_header("source")))
