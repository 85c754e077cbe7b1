"""One way to call an attention kind: its tensors, and the steps that are drawn for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_graph_testing.attention.captured_model import CapturedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from attn_update import Lengths, StepParameters, UpdateLane, UpdatePlan

Step: TypeAlias = dict[str, Any]
"""Step arguments by name."""


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """A kind, called in one way.

    Attributes:
        kind_name: In the table of kinds.
        shared: What all layers of a key are called with.
        layer: What one layer adds: its caches.
        captured: The step that is captured; by default the kind takes no step arguments.
        draw: Another step of a key.
        written: What a step writes into captured tensors of a key beside the block table, by name.
        valid_tokens: How many query tokens of a step have results; None for all.
        keys: The graph keys: numbers of sequences.
    """

    name: str
    kind_name: str
    shared: Callable[[CaseModel, int], dict[str, object]]
    layer: Callable[[CaseModel], dict[str, object]]
    captured: Callable[[CaseModel, int], Step] = lambda *_: {}
    draw: Callable[[Random, CaseModel, int], Step] = lambda *_: {}
    written: Callable[[Random, CaseModel, int], dict[str, torch.Tensor]] = lambda *_: {}
    valid_tokens: Callable[[Step], int | None] = lambda _: None
    keys: tuple[int, ...] = (2, 4)


@dataclass(kw_only=True)
class CaseModel(CapturedModel[Step]):
    """Layers that call attention as a case says.

    Attributes:
        case: Says so.
        shared: By key.
        layers: What each layer adds.
    """

    case: AttentionCase
    num_layers: int = 2
    shared: dict[int, dict[str, object]] = field(default_factory=dict)
    layers: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kind_name = self.case.kind_name
        self.layers = [self.case.layer(self) for _ in range(self.num_layers)]

    def step_arguments(self, key: int, step: Step) -> dict[str, Lengths]:
        """Return those arguments of a step that the plan declares."""
        group = self.plans[key].groups.get("default")
        return {} if group is None else {name: step[name] for name in group.arguments}

    def captured_step(self, key: int) -> Step:
        """Return the case's captured step."""
        return self.case.captured(self, key)

    def arguments(self, key: int, layer: int, step: Step) -> dict[str, object]:
        """Return the arguments of attention in one layer."""
        if key not in self.shared:
            self.shared[key] = self.case.shared(self, key)
        return {**self.shared[key], **self.layers[layer], **step}

    def valid(self, step: Step, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the part of the outputs that means something after a step."""
        tokens = self.case.valid_tokens(step)
        return outputs if tokens is None else [out[:tokens] for out in outputs]

    def draw(self, random: Random, key: int) -> DrawnStep:
        """Return a random step, and the content of captured tensors for it."""
        step = self.case.draw(random, self, key)
        written = dict(self.case.written(random, self, key))
        table = self.shared[key].get("block_table")
        if isinstance(table, torch.Tensor):
            rows, columns = table.shape
            drawn = [[random.randrange(BLOCKS) for _ in range(columns)] for _ in range(rows)]
            written["block_table"] = torch.tensor(drawn, dtype=torch.int32).to(table.device)
        return DrawnStep(key=key, step=step, written=written)

    def run(self, lane: UpdateLane, drawn: DrawnStep) -> list[torch.Tensor]:
        """Run one step and return copies of its outputs, queued after the replay."""
        self._write(drawn)
        return self.step(lane, drawn.key, drawn.step)

    def prepared(self, drawn: DrawnStep) -> tuple[UpdatePlan, StepParameters, Callable[[], None]]:
        """Return the arguments of `UpdateLane.run` for a step."""
        parameters = self.parameters(drawn.key, drawn.step)
        return self.plans[drawn.key], parameters, self.graphs[drawn.key].replay

    def expected(self, drawn: DrawnStep) -> list[torch.Tensor]:
        """Return the output of the eager operator for a step."""
        self._write(drawn)
        return self.eager(drawn.key, drawn.step)

    def _write(self, drawn: DrawnStep) -> None:
        for name, value in drawn.written.items():
            tensor = self.shared[drawn.key][name]
            assert isinstance(tensor, torch.Tensor)  # noqa: S101
            tensor.copy_(value)


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """One step, ready to be run: its tensors are on the device.

    Attributes:
        step: Step arguments by name.
        written: What captured tensors are to hold, by the names of their arguments.
    """

    key: int
    step: Step
    written: Mapping[str, torch.Tensor]


def integers(model: CaseModel, values: list[int], *shape: int) -> torch.Tensor:
    """Return a tensor of int32 on the device."""
    return torch.tensor(values, dtype=torch.int32).reshape(shape).to(model.device.torch_device)


HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, COLUMNS, BLOCKS = 4, 2, 16, 16, 3, 8
LONGEST = BLOCK_SIZE * COLUMNS
