"""Attention operators in plain torch, registered with torch while they are open.

They provide the four operators of fused attention, so `FusedInferAttention` drives them
through the same code as the real ones; a `FakeDevice` captures the operators they consist of. Their
computation is simple and distinguishes all lengths: a query token's output is its query plus the
sum of the values of its sequence's key tokens.
"""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from attn_update.kinds import FusedInferAttention, OperatorFamily

if TYPE_CHECKING:
    from typing_extensions import Self

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, *, SymInt[]? actual_seq_lengths=None, "
    "SymInt[]? actual_seq_lengths_kv=None, Tensor? block_table=None, str input_layout='TND', "
    "int block_size=0"
)

_BYTES_PER_TOKEN = 8  # of the largest workspace


class AttentionOperators:
    """The operators, and the attention kind that names them. A context manager.

    Attributes:
        failing: Calls of the operator that is updated, by number from now on, that raise:
            ``{0: error}`` fails the next.
    """

    def __init__(self) -> None:
        self.failing: dict[int, Exception] = {}
        # Torch remembers operators by name for ever, so a name is never used again.
        self._namespace = f"npu_graph_testing_{uuid.uuid4().hex}"
        self._library: Any = torch.library.Library(  # type: ignore[no-untyped-call]
            self._namespace, "DEF"
        )
        define: Any = self._library.define
        implement: Any = self._library.impl
        define(f"attention({_ARGUMENTS}) -> (Tensor, Tensor)")
        define(
            f"attention.out({_ARGUMENTS}, Tensor? workspace=None, Tensor(a!)[] out) "
            f"-> (Tensor, Tensor)"
        )
        define(f"max_workspace({_ARGUMENTS}) -> Tensor")
        define("infer_output(Tensor query, Tensor value) -> (Tensor, Tensor)")
        implement("attention", self._attention, "CPU")
        implement("attention.out", self._attention_out, "CPU")
        implement("max_workspace", self._max_workspace, "CPU")
        implement("infer_output", self._infer_output, "CPU")

    def kind(self, *, rebind_block_table: bool = False) -> FusedInferAttention:
        """Return the attention kind of these operators."""
        family = OperatorFamily(
            functional=f"{self._namespace}::attention",
            workspace_query=f"{self._namespace}::max_workspace",
            output_query=f"{self._namespace}::infer_output",
            query_lengths="actual_seq_lengths",
            key_lengths="actual_seq_lengths_kv",
            heads="num_heads",
            softmax_lse="softmax_lse_flag",
        )
        return FusedInferAttention(family=family, rebind_block_table=rebind_block_table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the operators out of torch."""
        # Torch takes out what a library has registered when that is gone.
        self._library = None

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        **given: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        attention, lse = self._infer_output(query, value)
        return self._attention_out(query, key, value, out=[attention, lse], **given)

    def _attention_out(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        actual_seq_lengths: list[int] | None = None,
        actual_seq_lengths_kv: list[int] | None = None,
        block_table: torch.Tensor | None = None,
        input_layout: str = "TND",
        block_size: int = 0,
        workspace: torch.Tensor | None = None,
        out: list[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        del key, workspace, block_size
        self.failing = {number - 1: error for number, error in self.failing.items()}
        if -1 in self.failing:
            raise self.failing.pop(-1)
        if input_layout != "TND" or block_table is None:
            raise ValueError("this model has paged attention in layout TND only")
        ends, lengths = list(actual_seq_lengths or []), list(actual_seq_lengths_kv or [])
        counts = [end - begin for begin, end in pairwise([0, *ends])]
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        # The same operators, and as many, whatever the lengths are; those are baked in.
        tokens = value.index_select(0, block_table.long().flatten())
        tokens = tokens.reshape(len(block_table), -1, value.shape[-1])
        positions = torch.arange(tokens.shape[1], device=value.device)
        given = torch.tensor(lengths, device=value.device).unsqueeze(1)
        sums = (tokens * (positions < given).unsqueeze(2)).sum(1)
        own = sums.index_select(0, torch.tensor(rows, dtype=torch.long, device=value.device))
        out[0][: len(rows)] = query[: len(rows)] + own
        return out[0], out[1]

    def _max_workspace(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        **given: Any,
    ) -> torch.Tensor:
        del key, value, given
        return torch.empty(_BYTES_PER_TOKEN * query.shape[0])

    def _infer_output(
        self, query: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        del value
        return torch.zeros_like(query), query.new_zeros(0)
