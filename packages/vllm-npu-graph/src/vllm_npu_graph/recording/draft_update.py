"""The attention of a draft model, all of whose steps are in one graph."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm_npu_graph.recording.attention_update import AttentionUpdate

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from attn_update import UpdateLane


class DraftUpdate(AttentionUpdate):
    """Records a layer once in each step of the draft, by the name of both."""

    def __init__(self, lane: UpdateLane, layers: Iterable[str], steps: int) -> None:
        super().__init__(lane, frozenset(by_launch([dict.fromkeys(layers)] * steps)))
        self._launched = Counter[str]()

    @contextmanager
    def recording(self, key: Hashable) -> Iterator[None]:
        """Record the attention captured inside; each layer's first launch is that of step 0."""
        self._launched.clear()
        with super().recording(key):
            yield

    def metadata(self, context: Any) -> dict[str, Any]:
        """Return the engine's metadata of each launch; each step of the draft has its own."""
        return by_launch(context.draft_attn_metadatas)

    def attention(
        self, layer_name: str, kind: Any, metadata: Any, arguments: Any, *read: Any, **pad: Any
    ) -> Any:
        """Capture a layer in its next step."""
        step = self._launched[layer_name]
        self._launched[layer_name] += 1
        if step > 0:
            # Captured by the engine like the first, and replayed with one token a sequence.
            count, table = len(arguments["query"]), arguments["block_table"]
            names = kind.family
            arguments[names.query_lengths] = list(range(1, count + 1))
            arguments[names.key_lengths] = [1] * count
            arguments["block_table"] = table.new_empty(count, table.shape[1])
        name = f"{layer_name}, step {step}"
        return super().attention(name, kind, metadata, arguments, *read, **pad)


def by_launch(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of each layer in each step, by the name of the launch."""
    return {
        f"{layer}, step {step}": own
        for step, each in enumerate(steps)
        for layer, own in each.items()
    }
