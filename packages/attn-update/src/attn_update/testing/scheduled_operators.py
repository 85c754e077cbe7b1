"""Attention operators on a `ScheduledDevice`, registered with torch for as long as they are open.

They have the four faces of the fused attention operators, so `FusedInferAttention` drives them
through the same code as the real ones. What they compute is simple and tells all lengths apart: a
query token's output is its query plus the sum of the values of its sequence's key tokens.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import torch

from attn_update.kinds.fused.fused_infer_attention import FusedInferAttention
from attn_update.kinds.fused.operator_family import OperatorFamily
from attn_update.torch_internals import unregister

if TYPE_CHECKING:
    from typing_extensions import Self

    from attn_update.testing.scheduled_device import ScheduledDevice

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, *, SymInt[]? actual_seq_lengths=None, "
    "SymInt[]? actual_seq_lengths_kv=None, Tensor? block_table=None, str input_layout='TND', "
    "int block_size=0"
)


class ScheduledOperators:
    """The operators, and the attention kind that names them. A context manager.

    Args:
        device: Runs the launches.
        workspace_bytes_per_token: The largest workspace is this times the query tokens.
    """

    def __init__(self, device: ScheduledDevice, *, workspace_bytes_per_token: int = 8) -> None:
        self._device = device
        self._bytes = workspace_bytes_per_token
        # Torch remembers operators by name for ever, so a name is never used again.
        self._namespace = f"attn_update_testing_{uuid.uuid4().hex}"
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
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the operators out of torch."""
        unregister(self._library)

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
        del key, workspace
        if input_layout != "TND" or block_table is None:
            raise ValueError("this model has paged attention in layout TND only")
        ends, lengths = list(actual_seq_lengths or []), list(actual_seq_lengths_kv or [])
        results = tuple(out)
        tensors = query, value, block_table, out[0]
        query, value, table, attention = map(self._device.launch_tensor, tensors)

        def run() -> None:
            begin = 0
            for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
                blocks = table[row, : -(-length // block_size)].long()
                tokens = value[blocks].flatten(0, 1)[:length]
                attention[begin:end] = query[begin:end] + tokens.sum(0)
                begin = end

        self._device.launch("attention", run)
        return results[0], results[1]

    def _max_workspace(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        **given: Any,
    ) -> torch.Tensor:
        del key, value, given
        return torch.empty(self._bytes * query.shape[0])

    def _infer_output(
        self, query: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        del value
        return torch.zeros_like(query), query.new_zeros(0)
