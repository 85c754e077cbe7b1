"""Work of a function that a captured graph cannot repeat, and its source line."""

from __future__ import annotations

import dataclasses
import enum
from types import MappingProxyType


class FindingKind(enum.Enum):
    """The kind of problem at a line. The value is for messages."""

    SCALAR_READ = "reads a value of the device on the host"
    COPY_TO_HOST = "copies from the device to the host"
    COPY_FROM_HOST = "copies from memory of the host that a replay cannot read again"
    DATA_DEPENDENT_SHAPE = "makes a shape that depends on values of the device"
    WAIT = "waits for the device or asks whether it has finished"
    RANDOM_SEED = "sets a random seed on the host"
    KEPT_MEMORY = "keeps memory that it makes in each call"
    CHANGED_STATE = "changes a value of Python in each call"

    @property
    def remedy(self) -> str:
        """What to do instead."""
        return _REMEDIES[self]


_BREAK = "or mark the function that does it with runs_eagerly and capture in RunMode.BREAKABLE"
_REMEDIES = MappingProxyType(
    {
        FindingKind.SCALAR_READ: (
            "keep the choice on the device (torch.where, masks of fixed shape), pass the number to "
            f"the function as a Python value that is part of the graph key, {_BREAK}"
        ),
        FindingKind.COPY_TO_HOST: (
            "return the tensor and copy it after the replay, copy it into pinned memory that you "
            f"keep as long as the graph (copy_ with non_blocking=True), {_BREAK}"
        ),
        FindingKind.COPY_FROM_HOST: (
            "make the tensor before the capture and keep it, fill it on the device (torch.full, "
            "torch.arange), or copy from pinned memory that you keep as long as the graph "
            "(copy_ with non_blocking=True)"
        ),
        FindingKind.DATA_DEPENDENT_SHAPE: (
            "use an operation of fixed shape (torch.where with three arguments, masked_fill, topk, "
            f"repeat_interleave with output_size), {_BREAK}"
        ),
        FindingKind.WAIT: (
            "leave it out: work on one stream is in order, and streams wait for each other by "
            "wait_stream and wait_event; wait on the host after the replay"
        ),
        FindingKind.RANDOM_SEED: (
            "set the seed before the call; replays run no Python, so they do not set it"
        ),
        FindingKind.KEPT_MEMORY: (
            "make the tensor before the capture, return it, or write into a buffer that exists "
            "(copy_)"
        ),
        FindingKind.CHANGED_STATE: (
            "keep in a tensor what the function counts or remembers, or change it outside of the "
            "function; replays run no Python, so the value stays as it is at the capture"
        ),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CaptureFinding:
    """A line of a function that a captured graph cannot repeat.

    Attributes:
        kind: the kind of problem.
        operator: the operator or function that causes it, such as ``aten._local_scalar_dense``.
        file: file of the line; empty if unknown.
        line: number of the line; 0 if unknown.
        module: qualified name of the ``nn.Module`` whose method it is; empty outside modules.
        detail: more details for messages; may be empty.
        is_of_first_call: whether a second call did not do it, for example because a function fills
            a cache. A capture after a warm-up run does not meet it.
    """

    kind: FindingKind
    operator: str
    file: str
    line: int
    module: str = ""
    detail: str = ""
    is_of_first_call: bool = False

    @property
    def remedy(self) -> str:
        """What to do instead."""
        if self.is_of_first_call:
            return "call the function once before the capture, as warmup_runs=1 does"
        return self.kind.remedy

    @property
    def place(self) -> str:
        """File and line, and the module."""
        where = f"{self.file}:{self.line}" if self.file else "a line that is not known"
        return f"{where} (module {self.module})" if self.module else where

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        when = ", in the first call only" if self.is_of_first_call else ""
        return f"{self.place}: {self.operator} {self.kind.value}{detail}{when}"
