"""Attention under context parallelism (DCP and PCP), over FIA v1, with the softmax sums.

The keys of a sequence are distributed over the processes of prefill (PCP) and decode (DCP) context
parallelism. Each process attends over its part and also returns the logarithm of its softmax sums,
with which the parts are merged. Under DCP the queries of the group are gathered first, so a
process runs the heads of the whole group. The arguments are those of the model on one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError, StepParameterError
from attn_update.kinds.fused_infer_attention import FusedInferAttention
from attn_update.kinds.latent_attention import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


@dataclass(frozen=True, kw_only=True)
class ContextParallelRank:
    """The part of the keys that this process has.

    Attributes:
        dcp_size: Number of processes of decode context parallelism.
        dcp_rank: Rank of this process among them.
        pcp_size: Number of processes of prefill context parallelism.
        pcp_rank: Rank of this process among them.
    """

    dcp_size: int = 1
    dcp_rank: int = 0
    pcp_size: int = 1
    pcp_rank: int = 0

    def __post_init__(self) -> None:
        """Reject a rank that is not below its size.

        Raises:
            ValueError: It is not.
        """
        for name, rank, size in (
            ("dcp", self.dcp_rank, self.dcp_size),
            ("pcp", self.pcp_rank, self.pcp_size),
        ):
            if not 0 <= rank < size:
                raise ValueError(
                    f"making a context parallel rank: expected 0 <= {name}_rank < {name}_size, "
                    f"found rank {rank} of {size}",
                )

    def own_lengths(self, value: object, *, what: str) -> object:
        """Return this process's key lengths, selected from those of all if necessary.

        Args:
            value: If one-dimensional, the lengths of this process, returned unchanged. Otherwise a
                CPU
                tensor or array with the lengths of all: [sequences, dcp_size], or [sequences,
                pcp_size, dcp_size].
            what: Name of the value in errors.

        Raises:
            StepParameterError: It has another shape.
        """
        shape = tuple(getattr(value, "shape", ()))
        if len(shape) < 2:
            return value
        table: Any = value
        if isinstance(table, torch.Tensor) and table.device.type != "cpu":
            raise StepParameterError(
                f"reading {what}: the tensor is on {table.device}, and reading it would block the "
                f"host; keep lengths on the CPU",
            )
        if shape[1:] == (self.pcp_size, self.dcp_size):
            return table[:, self.pcp_rank, self.dcp_rank]
        if shape[1:] == (self.dcp_size,) and self.pcp_size == 1:
            return table[:, self.dcp_rank]
        raise StepParameterError(
            f"reading {what}: expected lengths of this process, [sequences], or of all, "
            f"[sequences, {self.pcp_size}, {self.dcp_size}]"
            f"{f' or [sequences, {self.dcp_size}]' if self.pcp_size == 1 else ''}, found shape "
            f"{shape}",
        )


@dataclass(frozen=True, kw_only=True)
class ContextParallelAttention(FusedInferAttention):
    """Attention over this process's part of the keys.

    The number of heads is the model's on one process, but the query has those of the whole DCP
    group; the operator gets the product. ``softmax_lse`` is always among the outputs. Key
    lengths may be those of all processes, as for `ContextParallelRank.own_lengths`.

    Attributes:
        rank: This process.
    """

    rank: ContextParallelRank

    def complete(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments of the operator: own key lengths, gathered heads, with the sums.

        Raises:
            ArgumentError: The number of heads is missing, or the arguments disable the sums.
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


@dataclass(frozen=True, kw_only=True)
class ContextParallelLatentAttention(ContextParallelAttention, LatentAttention):
    """Latent attention over this process's part of the keys; heads are gathered, then padded.

    Layouts: ``BNSD`` for one query token per sequence, ``BSND`` for several.
    """
