"""Raise where Python looks for signals: deterministic Ctrl-C, at any place that is chosen."""

from __future__ import annotations

import dis
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attn_update
import npu_graph_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType, ModuleType, TracebackType

    from typing_extensions import Self

_FOLDERS = (Path(attn_update.__file__).parent, Path(npu_graph_runtime.__file__).parent)


class RaiseAt:
    """Raises KeyboardInterrupt on this thread at places of these packages, once or twice.

    A place is the entry of a function, or the point after a call or a jump backward: there the
    interpreter checks for signals from Python 3.11 on. Python 3.10 checks almost everywhere.

    Args:
        first: Index of the place, counted from 1; 0 for none.
        second: Index of the function entry, or end of a C call, after the first exception.
        also: Modules called by these packages whose places also count.

    Attributes:
        count: Number of places reached.
        raised: Where it raised.
    """

    def __init__(self, first: int, second: int = 0, *, also: Sequence[ModuleType] = ()) -> None:
        self.count = 0
        self.raised: list[str] = []
        self._first = first
        self._second = second
        self._also = {module.__file__ for module in also}
        self._count_behind = 0
        self._is_own: dict[CodeType, bool] = {}
        self._looks: dict[CodeType, frozenset[int]] = {}

    def __enter__(self) -> Self:
        # What raises ends its own kind of tracing, so the second one is of the other kind.
        sys.setprofile(self._profile if self._second else None)
        sys.settrace(self._enter)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _owns(self, code: CodeType) -> bool:
        known = self._is_own.get(code)
        if known is None:
            parents = Path(code.co_filename).parents
            known = self._is_own[code] = code.co_filename in self._also or any(
                folder in parents for folder in _FOLDERS
            )
        return known

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.raised or event not in {"call", "c_return"} or not self._owns(frame.f_code):
            return
        self._count_behind += 1
        if self._count_behind == self._second:
            self._raise(frame)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if not self._owns(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._look(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and frame.f_lasti in self._looks_of(frame.f_code):
            self._look(frame)
        return self._step

    def _look(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._first:
            self._raise(frame)

    def _raise(self, frame: FrameType) -> None:
        self.raised.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        raise KeyboardInterrupt

    def _looks_of(self, code: CodeType) -> frozenset[int]:
        known = self._looks.get(code)
        if known is None:
            instructions = list(dis.get_instructions(code))
            known = self._looks[code] = frozenset(
                after.offset
                for before, after in pairwise(instructions)
                if before.opname.startswith("CALL") or "BACKWARD" in before.opname
            )
        return known


def count_places(call: Callable[[], object], *, also: Sequence[ModuleType] = ()) -> int:
    """Return how many places a call comes to."""
    with RaiseAt(0, also=also) as counted:
        call()
    return counted.count
