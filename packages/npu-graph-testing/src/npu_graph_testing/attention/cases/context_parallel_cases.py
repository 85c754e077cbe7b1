"""Ways to call attention under context parallelism, with the key lengths of every process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from attn_update.kinds import ContextParallelRank
from npu_graph_testing.attention.cases.attention_case import HEADS
from npu_graph_testing.attention.cases.fused_infer_cases import rebound, whole_mask
from npu_graph_testing.attention.cases.latent_cases import LATENT_DIM, ROPE_DIM
from npu_graph_testing.attention.cases.paged_case import PagedCase

if TYPE_CHECKING:
    from attn_update.kinds import LengthArray
    from npu_graph_testing.attention.cases.attention_case import AttentionCase

RANK = ContextParallelRank(dcp_size=2, dcp_rank=1, pcp_size=3, pcp_rank=2)
GROUPED, LATENT = "context_parallel_attention", "context_parallel_latent_attention"


def lengths_of_all(lengths: list[int]) -> LengthArray:
    """Return an array [sequences, pcp, dcp]: `lengths` at `RANK`, others elsewhere."""
    shape = (len(lengths), RANK.pcp_size, RANK.dcp_size)
    table = torch.arange(len(lengths) * RANK.pcp_size * RANK.dcp_size, dtype=torch.int32)
    table = table.reshape(shape)
    table[:, RANK.pcp_rank, RANK.dcp_rank] = torch.tensor(lengths, dtype=torch.int32)
    array: LengthArray = table.numpy()
    return array


def lengths_of_process(value: object) -> list[int]:
    """Return the lengths in a step argument as a list, of the process of `RANK`."""
    own: Any = RANK.own_lengths(value, what="a step argument")
    return [int(length) for length in own]


def own_lengths_as_tensor(lengths: list[int]) -> torch.Tensor:
    """Return the lengths that a process has computed for itself, as a CPU tensor."""
    return torch.tensor(lengths, dtype=torch.int32)


def context_parallel_cases() -> list[AttentionCase]:
    """Return all of them; heads of the query are those of the DCP group."""
    grouped = PagedCase(
        name="context parallel",
        kind_name=GROUPED,
        heads=HEADS * RANK.dcp_size,
        told_heads=HEADS,
        key_lengths=lengths_of_all,
    )
    latent = replace(
        grouped,
        name="context parallel latent BNSD",
        kind_name=LATENT,
        layout="BNSD",
        gives_query_lengths=False,
        kv_heads=1,
        dim=LATENT_DIM,
        rope_dim=ROPE_DIM,
        cache_has_heads=True,
    )
    cases = [
        grouped,
        replace(grouped, name="context parallel own", key_lengths=own_lengths_as_tensor),
        replace(
            grouped,
            name="context parallel speculative",
            layout="BSND",
            tokens=2,
            arguments=whole_mask,
        ),
        rebound(grouped),
        latent,
        replace(latent, name="context parallel latent padded", heads=6, told_heads=3),
        replace(
            latent,
            name="context parallel latent speculative",
            layout="BSND",
            tokens=2,
            gives_query_lengths=True,
            cache_has_heads=False,
            arguments=whole_mask,
        ),
        rebound(replace(latent, name="context parallel latent")),
    ]
    return [case.build() for case in cases]
