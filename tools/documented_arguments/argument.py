"""The documented facts about one tensor argument of an operator."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

MOST_DIMENSIONS: Final = 8
"""An aclnn tensor has at most this many dimensions."""

ANY_RANK: Final = frozenset(range(MOST_DIMENSIONS + 1))

# Names of the documents -> names of aclDataType without the ACL_ prefix.
_DATA_TYPES: Final = {
    "FLOAT": "FLOAT",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "FLOAT16": "FLOAT16",
    "BFLOAT16": "BF16",
    "BF16": "BF16",
    "DOUBLE": "DOUBLE",
    "INT4": "INT4",
    "INT8": "INT8",
    "INT16": "INT16",
    "INT32": "INT32",
    "INT64": "INT64",
    "UINT1": "UINT1",
    "UINT8": "UINT8",
    "UINT16": "UINT16",
    "UINT32": "UINT32",
    "UINT64": "UINT64",
    "BOOL": "BOOL",
    "COMPLEX32": "COMPLEX32",
    "COMPLEX64": "COMPLEX64",
    "COMPLEX128": "COMPLEX128",
}
# Dtypes of other products, which the simulated one has not whatever a table says.
_OF_OTHER_PRODUCTS: Final = frozenset(
    {
        "HIFLOAT8",
        "HIF8",
        "FLOAT8",
        "FLOAT8_E5M2",
        "FLOAT8_E4M3",
        "FLOAT8_E4M3FN",
        "FLOAT8_E8M0",
        "FLOAT32_E8M0",
        "FLOAT6_E3M2",
        "FLOAT6_E2M3",
        "FLOAT4_E2M1",
        "FLOAT4_E1M2",
    }
)
_DATA_TYPE: Final = re.compile(
    r"(?<![A-Z0-9_])(?:B?FLOAT|HIF|BF|DOUBLE|U?INT|BOOL|COMPLEX)[A-Z0-9_]*"
)
_SAME_AS: Final = re.compile(r"[与和同]\s*(?:参数)?\s*[“`']?(?:参数)?([A-Za-z][A-Za-z0-9]*)")

# Formats with elements in the order of the dimensions; the simulator treats them as one.
_PLAIN: Final = frozenset({"ND", "NC", "NCL", "NCHW", "NCDHW"})


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One row of the table.

    Attributes:
        name: Name in the prototype.
        data_types: Accepted types, named as aclDataType without the prefix.
        ranks: Accepted numbers of dimensions.
        plain: Whether a plain format (ND, NCHW, ...) is accepted.
        nz: Whether the format FRACTAL_NZ is accepted.
        strided: Whether a tensor that is not contiguous is accepted.
    """

    name: str
    data_types: frozenset[str]
    ranks: frozenset[int] = ANY_RANK
    plain: bool = True
    nz: bool = False
    strided: bool = True

    def renamed(self, name: str) -> Argument:
        """Return the same row for an argument of another name."""
        return replace(self, name=name)

    def changed(self, *, strided: bool, ranks: frozenset[int]) -> Argument:
        """Return the row with strides and dimensions corrected by the sources."""
        return replace(self, strided=strided, ranks=ranks)


def read_data_types(text: str) -> frozenset[str]:
    """Return the dtypes of the simulated product that a text names.

    Raises:
        ValueError: A word looks like a dtype but is unknown.
    """
    names = frozenset(match[0] for match in _DATA_TYPE.finditer(text.replace("Q_S", " Q_S")))
    if unknown := names - _DATA_TYPES.keys() - _OF_OTHER_PRODUCTS - {"INT", "FLOAT32r"}:
        message = f"reading the dtypes of {text!r}: {sorted(unknown)} are unknown; add them"
        raise ValueError(message)
    return frozenset(_DATA_TYPES[name] for name in names if name in _DATA_TYPES)


def same_as(text: str) -> str | None:
    """Return the argument that a cell such as "same as self" points to, if it is such a cell."""
    found = _SAME_AS.search(text)
    return found[1] if found else None


def read_ranks(text: str) -> frozenset[int]:
    """Return the numbers of dimensions that a cell allows; all if it gives none."""
    if found := re.match(r"(?:维度支持)?([1-8两])维，", text):
        return frozenset({2 if found[1] == "两" else int(found[1])})
    text = text.replace(",", "，") if "(" not in text and "[" not in text else text
    text = re.sub(r"维|D(?=/)|\s|支持|。|`|shape|ND", "", text)
    text = text.replace("~", "-").replace("至", "-").replace("–", "-")
    if (
        re.fullmatch(r"(不超过|不大于|不高于|小于等于|小于|≤|<=|最多)(8)(以上)?", text)
        or "不支持8以上" in text
    ):
        return ANY_RANK
    if found := re.fullmatch(r"(?:大于等于|≥|>=)(\d)|(\d)及以上", text):
        return frozenset(range(int(found[1] or found[2]), MOST_DIMENSIONS + 1))
    if found := re.fullmatch(r"大于(\d)", text):
        return frozenset(range(int(found[1]) + 1, MOST_DIMENSIONS + 1))
    ranks: set[int] = set()
    for part in re.split(r"[、，或和/]", text):
        if found := re.fullmatch(r"\[?(\d)-(\d+)\]?", part):
            ranks |= set(range(int(found[1]), min(int(found[2]), MOST_DIMENSIONS) + 1))
        elif re.fullmatch(r"\d", part) and int(part) <= MOST_DIMENSIONS:
            ranks.add(int(part))
        else:
            return ANY_RANK
    return frozenset(ranks)


def read_formats(text: str) -> tuple[bool, bool]:
    """Return whether a plain format is accepted, and whether FRACTAL_NZ is."""
    names = set(re.findall(r"[A-Z_0-9]+", text))
    nz = any(name.endswith("NZ") for name in names)
    return (not nz or bool(names & _PLAIN), nz)
