"""Attention under context parallelism (DCP and PCP): grouped queries over FIA v1, with the sums.

The arguments are those of the model on one process; see `ContextParallelRank`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.errors import ArgumentError
from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.operator_family import FIA_V1

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.kinds.context_parallel.context_parallel_rank import ContextParallelRank


@dataclass(frozen=True, kw_only=True)
class ContextParallelAttention(FusedInferAttention):
    """Attention over this process's part of the keys.

    The number of heads is the model's on one process, while the query has those of the whole DCP
    group; the operator is told their product. ``softmax_lse`` is always among the outputs. Key
    lengths may be those of all processes, as `ContextParallelRank.own_lengths` takes them.

    Attributes:
        rank: This process.
    """

    rank: ContextParallelRank

    def complete(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments of the operator: own key lengths, gathered heads, with the sums.

        Raises:
            ArgumentError: The number of heads is missing, or the sums are refused.
        """
        heads = arguments.get(self.family.heads)
        if not isinstance(heads, int):
            raise ArgumentError(
                f"reading {self.family.heads!r} of {self.operator}: expected the number of query "
                f"heads of one process, found {heads!r}",
            )
        if not arguments.get(self.family.softmax_lse, True):
            raise ArgumentError(
                f"reading {self.family.softmax_lse!r} of {self.operator}: context parallelism "
                f"merges by the softmax sums, so it must be True or left out",
            )
        given = dict(arguments)
        name = self.family.key_lengths
        if name in given:
            given[name] = self.rank.own_lengths(given[name], what=f"the captured {name}")
        given[self.family.heads] = heads * self.rank.dcp_size
        given[self.family.softmax_lse] = True
        return super().complete(given)

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths as checked lists, those of keys for this process."""
        name = self.family.key_lengths
        if name in values:
            own = self.rank.own_lengths(values[name], what=f"{name!r} of {what}")
            values = {**values, name: own}
        return super().prepare(values, geometry, pad=pad, what=what)


def context_parallel_attention(
    rank: ContextParallelRank, *, rebind_block_table: bool = False
) -> ContextParallelAttention:
    """Return the kind of grouped queries under DCP and PCP.

    Args:
        rank: This process.
        rebind_block_table: Whether a step may give another ``block_table``.
    """
    return ContextParallelAttention(family=FIA_V1, rank=rank, rebind_block_table=rebind_block_table)
