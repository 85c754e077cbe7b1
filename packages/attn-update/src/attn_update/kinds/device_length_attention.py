"""Attention that reads its lengths on the device, and therefore needs no update.

Sparse attention of recent models (SFA and DSA in vLLM-Ascend) has its lengths in device tensors.
The caller writes new ones into them, and the replay reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from attn_update.errors import ArgumentError
from attn_update.kinds.fused_infer_attention import as_tensors
from attn_update.operator_lookup import argument_names, check_argument_names, find_operator

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class MetadataOperator:
    """An operator whose results an attention operator takes, such as how work is split over cores.

    Attributes:
        argument: The argument of attention that takes the result, or the first of several.
        operator: The operator, with its overload if that is not the default one.
        bounds: Its integer arguments that a step may not exceed, such as the largest length. A
            captured graph keeps what they were at the capture.
        stage: When it runs: see `attn_update.producers.Producer`.
        further: The arguments that take its further results, in their order. None for a result that
            another operator reads, which calls `attn_update.producers.ProducerLane.wait_for`.
    """

    argument: str
    operator: str
    bounds: frozenset[str]
    stage: int = 0
    further: tuple[str | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeviceLengthAttention:
    """A kind that needs no update: a captured launch has no step parameters.

    Attributes:
        operator: The operator with its overload; without one, the default overload.
        length_arguments: Names of its length arguments. Each must be a tensor on the device of the
            first argument, because the graph would keep any other value.
        metadata: The operators that make metadata for it on the device, in every step: declare an
            `attn_update.producers.Producer` for each. A capture rejects other memory.
    """

    operator: str
    length_arguments: frozenset[str]
    metadata: tuple[MetadataOperator, ...] = ()

    @property
    def step_arguments(self) -> frozenset[str]:
        """Empty: this kind needs no update."""
        return frozenset()

    def run(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Run the operator, also inside a capture."""
        return as_tensors(find_operator(self.operator)(**arguments))

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject unknown arguments, and lengths that a replay would not read again.

        Raises:
            ArgumentError: An argument is unknown, or lengths are not a tensor on the device.
        """
        what = f"checking the arguments of {self.operator}"
        check_argument_names(self.operator, arguments)
        first = argument_names(find_operator(self.operator))[0]
        query = arguments.get(first)
        if not isinstance(query, torch.Tensor):
            raise ArgumentError(f"{what}: expected a tensor as {first!r}, found {query!r}")
        for name in sorted(self.length_arguments):
            value = arguments.get(name)
            if not isinstance(value, torch.Tensor) or value.device != query.device:
                place = value.device if isinstance(value, torch.Tensor) else type(value).__name__
                raise ArgumentError(
                    f"{what}: expected {name!r} on {query.device}, where a replay reads it, found "
                    f"{place}; lengths of the host would stay as they were captured",
                )
