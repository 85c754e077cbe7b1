"""What a runner needs of a model whose layers have other attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attn_update import Recorder
    from npu_compile import StepProducers
    from npu_graph_runtime import GraphDevice
    from qwen3_engine.qwen3.attention import Mark
    from qwen3_engine.qwen3.model import Qwen3Model


@dataclass(frozen=True, kw_only=True)
class LayerParts:
    """What the layers are made of.

    Attributes:
        model: its layers are replaced.
        recorder: launches attention.
        device: of the model.
        mark: decorates what runs eagerly in a breakable capture.
        num_blocks: blocks of each cache, and rows of each state; number 0 belongs to padding.
        max_sequences: the most of a step, padding and steps without a graph included.
        max_tokens: the most query tokens of a sequence in such a step.
        max_keys: the most of a sequence.
    """

    model: Qwen3Model
    recorder: Recorder
    device: GraphDevice
    mark: Mark
    num_blocks: int
    max_sequences: int
    max_tokens: int
    max_keys: int


class OtherLayers(Protocol):
    """Layers that replaced some of a model's own.

    What they keep of a sequence is allocated with its blocks: a state has the number of the
    sequence's first block.
    """

    @property
    def splitting_ops(self) -> list[str]:
        """The attention operators of the model, at which a graph may be split."""

    @property
    def has_updates(self) -> bool:
        """Whether the model still has layers whose lengths are updated in captured graphs."""

    @property
    def producers(self) -> StepProducers | None:
        """What makes the metadata of attention on the device, if it reads any."""

    def begin(self, blocks: Iterable[int]) -> None:
        """Forget what earlier sequences left; these are the first blocks of new ones."""

    def close(self) -> None:
        """Release the operators, after the graphs."""
