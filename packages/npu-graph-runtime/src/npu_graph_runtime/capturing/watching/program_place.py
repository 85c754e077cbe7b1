"""The currently running line of the program, outside torch and this package."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from types import FrameType

_TORCH = Path(torch.__file__).parent
_SKIPPED_FOLDERS = tuple(
    f"{folder}{os.sep}"
    for folder in (_TORCH, _TORCH.with_name("torch_npu"), Path(__file__).parents[2])
)


class ProgramPlace(NamedTuple):
    """A line of the program.

    Attributes:
        file: its file; empty if no line of the program is running.
        line: its number.
        module: the nearest ``nn.Module`` with a method running there.
    """

    file: str
    line: int
    module: nn.Module | None = None

    @classmethod
    def of(cls, frame: FrameType | None) -> ProgramPlace:
        """Return the place of a frame, or of its nearest caller in the program."""
        frame = program_frame(frame)
        if frame is None:
            return cls("", 0)
        file, line = frame.f_code.co_filename, frame.f_lineno
        outer: FrameType | None = frame
        while outer is not None:
            if outer.f_code.co_varnames[:1] == ("self",):
                value = outer.f_locals.get("self")
                if isinstance(value, nn.Module):
                    return cls(file, line, value)
            outer = outer.f_back
        return cls(file, line)


def program_frame(frame: FrameType | None = None) -> FrameType | None:
    """Return the nearest frame in the program, from a frame or from the caller on."""
    found = frame or inspect.currentframe()
    while found is not None and is_of_torch(found.f_code.co_filename):
        found = found.f_back
    return found


def is_of_torch(file: str) -> bool:
    """Return whether a file belongs to torch, torch_npu or this package."""
    return file.startswith(_SKIPPED_FOLDERS)
