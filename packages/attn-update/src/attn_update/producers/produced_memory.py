"""Memory that producers write or read, and the replays that may still use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attn_update.torch_internals import version_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    import torch

    from attn_update.recording.tensor_memory import MemorySpan
    from attn_update.task_device import Event, Stream


@dataclass(kw_only=True, eq=False)
class ProducedMemory:
    """One buffer or input of a lane's producers; graphs of several keys may share it.

    Attributes:
        tensor: The memory.
        name: In errors.
        span: Where it was when it was first seen.
        replayed: By graph key the event behind the latest replay that uses it.
        pending: By graph key the stream of a replay that is not known to be queued: one under way,
            or of a step that was not finished.
        storage_bytes: How large its storage was.
        near: All memories of the lane that share a byte with it, itself too.
        version: How often torch saw it written, when its producer last wrote it. None where others
            write the same storage too, or where torch does not count.
    """

    tensor: torch.Tensor
    name: str
    span: MemorySpan
    replayed: dict[Hashable, Event] = field(default_factory=dict)
    pending: dict[Hashable, Stream] = field(default_factory=dict)
    near: list[ProducedMemory] = field(default_factory=list)
    version: int | None = None
    storage_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.storage_bytes = self.tensor.untyped_storage().nbytes()

    @property
    def is_moved(self) -> bool:
        """Whether its memory was freed, or exchanged for other memory."""
        tensor = self.tensor
        if tensor.data_ptr() != self.span.start:
            return True
        return tensor.untyped_storage().nbytes() != self.storage_bytes

    @property
    def is_written_elsewhere(self) -> bool:
        """Whether something else than its producer has written it."""
        return self.version is not None and self.version != version_of(self.tensor)

    def note_written(self) -> None:
        """Note that its producer wrote it."""
        # A view of a larger buffer counts what is written beside it, too.
        is_alone = self.span.end - self.span.start == self.storage_bytes
        self.version = version_of(self.tensor) if is_alone else None
