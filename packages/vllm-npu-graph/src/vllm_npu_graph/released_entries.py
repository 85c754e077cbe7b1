"""A mapping of the engine's graphs that notices when the engine drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class ReleasedEntries(dict[Any, Any]):
    """Entries that the engine clears when it goes to sleep; this also releases ours."""

    def __init__(self, release: Callable[[], None]) -> None:
        super().__init__()
        self._release = release

    def clear(self) -> None:
        """Release the graphs."""
        super().clear()
        self._release()
