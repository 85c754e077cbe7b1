"""Finds device failures in a text: a single code, a message, or a whole log."""

from __future__ import annotations

import dataclasses
from typing import Any

from npu_graph_runtime.diagnosis import ERROR_CODES, ErrorCode, find_error_code


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFailure:
    """One error code found in a text. ``str()`` returns readable text.

    Attributes:
        code: the code, with its meaning and remedy.
        line: number of the first line that contains it, from 1.
        times: number of lines that contain it.
    """

    code: ErrorCode
    line: int
    times: int

    def to_mapping(self) -> dict[str, Any]:
        """Return the failure as plain data for JSON."""
        return {
            "code": self.code.code,
            "error": self.code.error.__name__,
            "meaning": self.code.meaning,
            "remedy": self.code.remedy,
            "line": self.line,
            "times": self.times,
        }

    def __str__(self) -> str:
        where = f", first on line {self.line} of {self.times}" if self.times > 1 else ""
        return (
            f"{self.code.code} {self.code.error.__name__}{where}: {self.code.meaning}\n"
            f"    {self.code.remedy}"
        )


def find_failures(text: str) -> list[DeviceFailure]:
    """Return the known failures in a text, each once, in order of appearance.

    The first one is usually the cause of the others.
    """
    found: dict[int, DeviceFailure] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        known = ERROR_CODES.get(int(word)) if word.isdecimal() else None
        code = known or find_error_code(RuntimeError(line))
        if code is not None:
            before = found.get(code.code)
            first, times = (before.line, before.times) if before else (number, 0)
            found[code.code] = DeviceFailure(code=code, line=first, times=times + 1)
    return list(found.values())
