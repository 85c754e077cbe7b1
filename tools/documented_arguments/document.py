"""Tables of the arguments in one document of an operator."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from documented_arguments.argument import (
    Argument,
    read_data_types,
    read_formats,
    read_ranks,
    same_as,
)
from documented_arguments.product import footnotes, of_product, restricted, without_footnotes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROTOTYPE: Final = re.compile(r"(aclnn\w+)GetWorkspaceSize\s*\(([^()]*)\)")
_HEADING: Final = re.compile(r"^#{2,4} +(.*)$", re.MULTILINE)
_TABLE: Final = re.compile(r"<table.*?</table>", re.DOTALL)
_BULLET: Final = re.compile(r"^ *[-*] *`?(\w+)`?\s*[(（]\s*(?:const\s+)?aclTensor(?:List)?\s*\*?")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of the C prototype: its type without `const` and `*`, and its name."""

    type: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of one argument as text."""

    data_types: str
    formats: str
    ranks: str
    strided: str


def read_prototypes(text: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each operator in the document, without workspace and executor."""
    prototypes: dict[str, tuple[Parameter, ...]] = {}
    for name, inside in _PROTOTYPE.findall(html.unescape(text)):
        parameters = []
        for part in re.sub(r"//[^\n]*|/\*.*?\*/", "", inside).split(","):
            words = re.findall(r"\w+", part)
            if len(words) > 1 and words[-1] not in {"workspaceSize", "executor"}:
                kinds = [word for word in words[:-1] if word != "const"]
                parameters.append(Parameter(type=kinds[0], name=words[-1]))
        if parameters:
            prototypes.setdefault(name, tuple(parameters))
    return prototypes


def read_arguments(
    text: str, operator: str, known: frozenset[str] = frozenset()
) -> tuple[Argument, ...]:
    """Read the documented tensor arguments of an operator, in order.

    Args:
        text: The document.
        operator: Name of the operator.
        known: Arguments that may lack a row or dtypes, because these are known from elsewhere.

    Raises:
        ValueError: The document has no prototype of the operator, or an argument has no row or no
            dtypes.
    """
    prototypes = read_prototypes(text)
    if operator not in prototypes:
        message = f"{operator}: the document has no prototype of it"
        raise ValueError(message)
    tensors = [p for p in prototypes[operator] if p.type in {"aclTensor", "aclTensorList"}]
    section = _section(of_product(text), operator)
    rows = dict(_table_rows(section)) or dict(_bulleted_rows(section))
    arguments: dict[str, Argument] = {}
    for parameter in tensors:
        cells = _row_of(parameter.name, rows)
        if cells is None and parameter.name in known:
            cells = Cells(data_types="", formats="ND", ranks="-", strided="√")
        if cells is None:
            message = f"{operator}: the document has no row for {parameter.name!r}"
            raise ValueError(message)
        arguments[parameter.name] = _argument(parameter.name, cells, arguments, rows)
    found = {argument.name: argument for argument in restricted(section, tuple(arguments.values()))}
    for name, argument in found.items():
        cells = _row_of(name, rows)
        if cells is None or read_data_types(cells.data_types):
            continue
        reference = next(
            (key for key in found if _folded(key) == _folded(same_as(cells.data_types) or "")), None
        )
        if reference is not None:
            found[name] = replace(argument, data_types=found[reference].data_types)
    if nameless := [a.name for a in found.values() if not a.data_types and a.name not in known]:
        message = f"{operator}: the document gives {nameless} no dtypes"
        raise ValueError(message)
    return tuple(found.values())


def _argument(
    name: str,
    cells: Cells,
    earlier: Mapping[str, Argument],
    rows: Mapping[str, Cells],
) -> Argument:
    data_types = read_data_types(cells.data_types)
    reference = same_as(cells.data_types)
    if not data_types and reference is not None:
        other = _row_of(reference, rows)
        data_types = read_data_types(other.data_types) if other else frozenset()
    ranks = read_ranks(cells.ranks)
    reference = same_as(cells.ranks)
    if reference is not None and reference in earlier and re.search(r"一致|相同", cells.ranks):
        ranks = earlier[reference].ranks
    plain, nz = read_formats(cells.formats)
    return Argument(
        name=name,
        data_types=data_types,
        ranks=ranks,
        plain=plain,
        nz=nz,
        strided=cells.strided.strip() not in {"×", "x", "X", "不支持"},
    )


def _section(text: str, operator: str) -> str:
    """Return the part of the document below the heading of the operator's first function."""
    headings = list(_HEADING.finditer(text))
    for index, heading in enumerate(headings):
        names = re.findall(r"aclnn\w+", heading[1])
        if f"{operator}GetWorkspaceSize" in names:
            level = heading[0].split(" ")[0]
            ends = (
                h.start() for h in headings[index + 1 :] if len(h[0].split(" ")[0]) <= len(level)
            )
            return text[heading.end() : next(ends, len(text))]
    return text


def _plain_text(cell: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", cell))).strip()


def _table_rows(section: str) -> Iterator[tuple[str, Cells]]:
    marks = footnotes(section)
    for table in _TABLE.findall(section):
        rows = [
            re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
            for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.DOTALL)
        ]
        yield from _cells(
            [[_plain_text(without_footnotes(cell, marks)) for cell in row] for row in rows]
        )
    lines = [
        line.strip().strip("|").split("|")
        for line in section.split("\n")
        if line.strip().startswith("|")
    ]
    yield from _cells([[_plain_text(cell) for cell in line] for line in lines])


def _cells(rows: list[list[str]]) -> Iterator[tuple[str, Cells]]:
    columns: dict[str, int] = {}
    for row in rows:
        if any("参数名" in cell for cell in row) and any("数据类型" in cell for cell in row):
            columns = {}
            for index, cell in enumerate(row):
                for key, word in (
                    ("data_types", "数据类型"),
                    ("formats", "格式"),
                    ("ranks", "维度"),
                    ("strided", "非连续"),
                ):
                    if word in cell:
                        columns[key] = index
            continue
        if columns and len(row) > max(columns.values()):
            name = re.match(r"\w+", row[0])
            if name:
                yield (
                    name[0],
                    Cells(**{key: row[index] for key, index in columns.items()})
                    if len(columns) == 4
                    else Cells(
                        data_types=row[columns["data_types"]], formats="ND", ranks="-", strided="√"
                    ),
                )


def _bulleted_rows(section: str) -> Iterator[tuple[str, Cells]]:
    lines = section.split("\n")
    for index, line in enumerate(lines):
        found = _BULLET.match(line)
        if not found:
            continue
        text = line
        for following in lines[index + 1 :]:
            if re.match(r"^ {0,3}[-*] ", following):
                break
            if ("（" in following and _BULLET.match(following)) or re.match(
                r"^ *[-*] *`?\w+`?\s*[(（]", following
            ):
                break
            text += "\n" + following
        ranks = re.search(r"维度?(?:为|支持)?(\d-\d)|(\d-\d)维|不(?:大于|超过|高于)(\d)", text)
        strided = "×" if re.search(r"不支持\[?非连续", text) else "√"
        same = re.search(r"数据类型(?:必须|需要|需)?[与和](\w+)", text)
        found_types = _DATA_TYPE_TEXT.findall(text)
        yield (
            found[1],
            Cells(
                data_types="、".join(found_types) or (f"与{same[1]}一致" if same else ""),
                formats="ND",
                ranks=(ranks[1] or ranks[2] or "0-8") if ranks else "-",
                strided=strided,
            ),
        )


_DATA_TYPE_TEXT: Final = re.compile(r"数据类型(?:仅)?支持(?:为)?[：:]?\s*([A-Z][A-Z0-9、，, _]*)")


def _row_of(name: str, rows: Mapping[str, Cells]) -> Cells | None:
    """Return the row of an argument, whose name a document may write differently."""
    if name in rows:
        return rows[name]
    folded = {_folded(key): cells for key, cells in rows.items()}
    return folded.get(_folded(name))


def _folded(name: str) -> str:
    return re.sub(r"(ref|optional|out)$", "", name.lower()) or name.lower()
