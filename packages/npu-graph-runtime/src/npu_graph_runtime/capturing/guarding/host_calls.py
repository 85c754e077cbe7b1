"""Python calls that are not operators: those that synchronise, print, or set a seed.

Python's profiling hook sees them, on the running thread; nothing is replaced.
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING, Any

from torch import Tensor

from npu_graph_runtime.capturing.guarding.capture_finding import FindingKind
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace, is_of_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

_SEEDS = frozenset({"manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state"})
_WAITS = frozenset({"synchronize", "query"})
_PRINTS = "_str"  # of torch._tensor_str
_NAMES = _SEEDS | _WAITS | {_PRINTS}


@contextlib.contextmanager
def watched_host_calls(
    add: Callable[[FindingKind, str, ProgramPlace], None],
    is_on_host: Callable[[Tensor], bool],
    codes: set[CodeType] | None = None,
) -> Iterator[None]:
    """Watch the calls of this thread in the block.

    A profiler that is already active, such as ``cProfile``, does not see the block. ``codes``
    receives the code of each function of the program that is called.
    """

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and codes is not None:
            codes.add(frame.f_code)
        if event == "call" and frame.f_code.co_name in _NAMES:
            kind, name = _python_call(frame, is_on_host)
            frame = frame.f_back or frame
        elif event == "c_call" and argument.__name__ in _WAITS | _SEEDS:
            kind, name = _call_of_torch(argument)
        else:
            return
        if kind is not None:
            add(kind, name, ProgramPlace.of(frame))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before)


def _python_call(
    frame: FrameType, is_on_host: Callable[[Tensor], bool]
) -> tuple[FindingKind | None, str]:
    """Return the effect and the name of a Python function call; ``None`` if it is harmless."""
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if name in _SEEDS and (is_of_torch(file) or file == random.__file__):
        return FindingKind.RANDOM_SEED, name
    if name in _WAITS and is_of_torch(file):
        return FindingKind.WAIT, name
    if name == _PRINTS and is_of_torch(file):
        tensor = frame.f_locals.get("self")
        if isinstance(tensor, Tensor) and not is_on_host(tensor):
            return FindingKind.COPY_TO_HOST, "Tensor.__repr__"
    return None, name


def _call_of_torch(function: Any) -> tuple[FindingKind | None, str]:
    """Return the effect and the name of a C method call; ``None`` if it is not of torch."""
    owner = type(getattr(function, "__self__", None))
    name = f"{owner.__name__}.{function.__name__}"
    if all(base.__module__.partition(".")[0] != "torch" for base in owner.__mro__):
        return None, name
    return (FindingKind.WAIT if function.__name__ in _WAITS else FindingKind.RANDOM_SEED), name
