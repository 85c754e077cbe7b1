"""What a recorder needs of a graph's producers: operators that make metadata for its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class LayerProducers(Protocol):
    """The producers of the graph that is captured now."""

    def before_layer(
        self, layer_name: str, arguments: Mapping[str, object], metadata: frozenset[str]
    ) -> None:
        """Let the current stream wait for those producers whose buffers a layer reads.

        A producer has to make the arguments named in ``metadata``.

        Raises:
            RecordingError: No producer makes one of these.
        """

    def replay_refusal(self) -> str | None:
        """Return why the graph may not be replayed now, or None; note the replay."""

    def release(self) -> None:
        """Forget the graph, because the recorder does."""
