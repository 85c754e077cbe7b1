"""Extracts the parts of a document about the simulated product (Atlas A2: Ascend 910B)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from documented_arguments.argument import Argument, read_data_types

_BEGIN: Final = re.compile(r'\s*<!--\s*npu="([^"]*)"\s+(id\d+)')
_END: Final = re.compile(r"\s*<!--\s*end (id\d+)")
_PRODUCT: Final = "910b"
_TERM: Final = "Atlas A2 训练系列产品"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")


def of_product(text: str) -> str:
    """Return the text without the parts for other products."""
    kept: list[str] = []
    skipped: str | None = None
    for line in text.split("\n"):
        if skipped is None and (begin := _BEGIN.match(line)):
            if _PRODUCT not in begin[1].lower().split(","):
                skipped = begin[2]
        elif end := _END.match(line):
            skipped = None if skipped == end[1] else skipped
        elif skipped is None:
            kept.append(line)
    return "\n".join(kept)


def restricted(section: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return the arguments after the remarks below the table that concern the product's dtypes."""
    ours = False
    subject = ""
    for line in re.sub(r"<table.*?</table>", "", section, flags=re.DOTALL).split("\n"):
        if bullet := re.match(r" *[-*] *`?(\w+)`?\s*[(（]\s*(?:const\s+)?\w+\s*\*", line):
            subject = bullet[1]
        if "<term>" in line:
            ours = _TERM in line
        text = re.sub(r"<term>.*?</term>", "", line)
        if ours and "代表该系列不支持" not in text and "cubeMathType" not in text:
            arguments = tuple(_restrict(argument, text, subject) for argument in arguments)
        if not line.strip().startswith(("-", "*")) and line.strip():
            ours = ours and "<term>" in line
    return arguments


def _restrict(argument: Argument, text: str, subject: str) -> Argument:
    if re.search(r"仅支持输入为", text):
        return argument  # of values, not of dtypes
    joined = re.sub(r"，(?=[A-Z]+\d*(?:[、，。；]|$))", "、", text)
    for clause in re.split(r"[；;。，]", joined):
        if "当" in clause or not read_data_types(clause):
            if "当" in text:
                return argument
            continue
        verb = re.search(r"额外支持|不支持|仅支持|数据类型支持|在该型号中不支持", clause)
        if verb is None:
            continue
        names = set(_NAME.findall(clause[: verb.start()])) - {"A"}
        about = argument.name in names or (not names and subject in {"", argument.name})
        if not about:
            continue
        named = read_data_types(clause)
        if verb[0] == "额外支持":
            argument = replace(argument, data_types=argument.data_types | named)
        elif verb[0] == "不支持" or verb[0] == "在该型号中不支持":
            argument = replace(argument, data_types=argument.data_types - named)
        else:
            argument = replace(argument, data_types=named)
    return argument


def footnotes(text: str) -> frozenset[str]:
    """Return the marks of dtypes that a table names and the product does not support."""
    marks: set[str] = set()
    ours = False
    for line in text.split("\n"):
        if "<term>" in line:
            ours = _TERM in line
        if ours and "代表该系列不支持" in line:
            marks.update(re.findall(r"角标[“\"](\d)", line))
    return frozenset(marks)


def without_footnotes(cell: str, marks: frozenset[str]) -> str:
    """Return the cell without the dtypes that carry one of the marks, and without all marks."""

    def kept(found: re.Match[str]) -> str:
        return "" if marks & set(re.findall(r"\d", found[2])) else found[1]

    return re.sub(r"(\w+)\s*<sup>([\d、,]+)</sup>", kept, cell)
