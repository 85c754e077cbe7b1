"""Attention over ragged sequences without a cache, by ``npu_fusion_attention_v3``.

The operator takes its lengths as integer tensors on the CPU, and a captured graph keeps what they
held. An update passes new tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError
from attn_update.kinds.fused_infer_attention import FusedInferAttention, OperatorFamily

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

FLASH_V3 = OperatorFamily(
    functional="npu::npu_fusion_attention_v3",
    workspace_query="npu::_npu_fusion_attention_v3_get_max_workspace",
    output_query="npu::_npu_fusion_attention_v3_infer_output",
    query_lengths="actual_seq_qlen",
    key_lengths="actual_seq_kvlen",
    heads="head_num",
    # The operator always returns the maxima and sums of the softmax.
    softmax_lse="",
)
"""Flash attention v3; schema of torch_npu 2.13."""


@dataclass(frozen=True, kw_only=True)
class FlashAttention(FusedInferAttention):
    """Flash attention over ragged queries and keys: layout ``TND``, cumulative lengths of both.

    The outputs are ``(attention, softmax_max, softmax_sum, softmax_out, seed, offset)``. The last
    three have no meaning without dropout, which a captured launch cannot have.
    """

    family: OperatorFamily = FLASH_V3

    def __post_init__(self) -> None:
        """Reject options that the operator cannot have.

        Raises:
            ArgumentError: `rebind_block_table` is set.
        """
        if self.rebind_block_table:
            raise ArgumentError(
                f"creating a kind over {self.operator}: it has no block table, so "
                f"rebind_block_table cannot be set; leave it out",
            )

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject what a captured launch could not update, before anything is launched.

        Raises:
            ArgumentError: As for `FusedInferAttention`; also a layout other than ``TND``, a list of
                lengths that is missing, or dropout.
        """
        super().check_arguments(arguments)
        what = f"checking the arguments of {self.operator}"
        layout = arguments.get("input_layout")
        if layout != "TND":
            raise ArgumentError(
                f"{what}: expected input_layout 'TND', found {layout!r}; the other layouts have no "
                f"lengths, so call the operator itself",
            )
        for name in (self.family.query_lengths, self.family.key_lengths):
            if arguments.get(name) is None:
                raise ArgumentError(f"{what}: {name!r} is missing; layout TND needs it")
        keep_prob = arguments.get("keep_prob", 1.0)
        if keep_prob != 1.0:
            raise ArgumentError(
                f"{what}: expected keep_prob 1.0, found {keep_prob!r}; a captured launch has no "
                f"dropout, so run it outside of the graph",
            )

    def passed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return complete arguments with lengths as tensors on the CPU."""
        lengths = {
            name: torch.tensor(given[name], dtype=torch.int64)
            for name in (self.family.query_lengths, self.family.key_lengths)
            if isinstance(given.get(name), list)
        }
        return {**given, **lengths}

    def outputs_for(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return ``out`` if given, else all six outputs on the device of the query."""
        outputs = super().outputs_for(given)
        if given.get("out") is not None:
            return outputs
        attention, softmax_max, softmax_sum = outputs
        seed, offset = (attention.new_empty(1, dtype=torch.int64) for _ in range(2))
        softmax_out = torch.empty_like(softmax_max)
        return attention, softmax_max, softmax_sum, softmax_out, seed, offset

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths, checked, as tensors on the CPU."""
        return self.passed(super().prepare(values, geometry, pad=pad, what=what))
