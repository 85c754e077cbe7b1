"""The cases of all kinds, and the kinds in one table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_update.kinds import (
    EncoderAttention,
    FlashAttention,
    FusedInferAttention,
    PagedAttention,
    context_parallel_kinds,
    default_kinds,
)
from npu_graph_testing.attention.cases.context_parallel_cases import (
    GROUPED,
    LATENT,
    RANK,
    context_parallel_cases,
)
from npu_graph_testing.attention.cases.fused_infer_cases import fused_infer_cases
from npu_graph_testing.attention.cases.latent_cases import latent_cases
from npu_graph_testing.attention.cases.lightning_indexer_cases import lightning_indexer_cases
from npu_graph_testing.attention.cases.paged_attention_cases import paged_attention_cases
from npu_graph_testing.attention.cases.ragged_cases import ragged_cases
from npu_graph_testing.attention.cases.sparse_flash_cases import sparse_flash_cases

if TYPE_CHECKING:
    from attn_update.kinds import Kind
    from npu_graph_testing.attention.cases.attention_case import AttentionCase


_PARALLEL = (GROUPED, LATENT)


def all_cases() -> list[AttentionCase]:
    """Return the cases of all kinds."""
    return [
        *fused_infer_cases(),
        *latent_cases(),
        *context_parallel_cases(),
        *ragged_cases(),
        *paged_attention_cases(),
        *sparse_flash_cases(),
        *lightning_indexer_cases(),
    ]


def find_case(name: str) -> AttentionCase:
    """Return the case of a name.

    Raises:
        LookupError: There is none.
    """
    cases = {case.name: case for case in all_cases()}
    if name not in cases:
        raise LookupError(
            f"finding the case {name!r}: there is none; there are: {', '.join(sorted(cases))}"
        )
    return cases[name]


def all_kinds() -> dict[str, Kind]:
    """Return all kinds in one table, those with options under names of their own.

    ``_rebound`` names a kind whose steps may give another block table, ``_unpadded`` one whose
    steps may also have fewer sequences than were captured.
    """
    kinds = {**default_kinds(), **context_parallel_kinds(RANK)}
    for name, kind in list(kinds.items()):
        if isinstance(kind, (EncoderAttention, FlashAttention)):
            continue
        if isinstance(kind, (FusedInferAttention, PagedAttention)):
            rebound = kinds[f"{name}_rebound"] = replace(kind, rebind_block_table=True)
            if isinstance(rebound, FusedInferAttention) and name not in _PARALLEL:
                kinds[f"{name}_unpadded"] = replace(rebound, allows_fewer_sequences=True)
    return kinds
