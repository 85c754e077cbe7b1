"""Encoder attention: whole sequences packed into a budget of tokens, queries and keys alike.

A graph is captured for a number of tokens and a number of sequences. A step says only where its
sequences end; keys end where queries do. Tokens that are left over belong to padding sequences,
see `ParameterGroup.pad`, and their outputs mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.operator_family import FIA_V1

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


@dataclass(frozen=True, kw_only=True)
class EncoderAttention(FusedInferAttention):
    """Self-attention over ragged sequences (layout ``TND``), without a cache."""

    @property
    def step_arguments(self) -> frozenset[str]:
        """The cumulative lengths, given once under the name of the query lengths."""
        return frozenset({self.family.query_lengths})

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the cumulative lengths, checked, for queries and keys."""
        given = {self.family.query_lengths: values[self.family.query_lengths]}
        prepared = super().prepare(given, geometry, pad=pad, what=what)
        # Padded as queries are, for the rule of keys knows no total to fill up to.
        same = {self.family.key_lengths: prepared[self.family.query_lengths]}
        prepared.update(super().prepare(same, geometry, pad=False, what=what))
        return prepared


def encoder_attention() -> EncoderAttention:
    """Return the kind of encoders over FIA v1; its step argument is ``actual_seq_lengths``."""
    return EncoderAttention(family=FIA_V1)
