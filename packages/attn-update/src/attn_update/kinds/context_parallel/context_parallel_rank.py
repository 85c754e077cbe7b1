"""The place of a process in context parallelism, and which lengths are its own.

The keys of a sequence are spread over the processes of prefill (PCP) and decode (DCP) context
parallelism. Each attends over its part and gives the logarithm of its softmax sums beside the
output, by which the parts are merged. Under DCP the queries of the group are gathered first, so a
process runs the heads of all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from attn_update.errors import StepParameterError


@dataclass(frozen=True, kw_only=True)
class ContextParallelRank:
    """Which part of the keys this process holds.

    Attributes:
        dcp_size: Processes of decode context parallelism.
        dcp_rank: This one among them.
        pcp_size: Processes of prefill context parallelism.
        pcp_rank: This one among them.
    """

    dcp_size: int = 1
    dcp_rank: int = 0
    pcp_size: int = 1
    pcp_rank: int = 0

    def __post_init__(self) -> None:
        """Refuse a rank that is not below its size.

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
        """Return this process's key lengths out of those of all.

        Args:
            value: Of one dimension: the lengths of this process, returned as they are. A CPU tensor
                or an array of two, [sequences, dcp_size], or of three, [sequences, pcp_size,
                dcp_size]: the lengths of all.
            what: Names the value in an error.

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
