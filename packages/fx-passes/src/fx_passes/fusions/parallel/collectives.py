"""The functional collectives that the rules know, in patterns and in rewrites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

    from fx_passes.rewriting.graph_builder import GraphBuilder


ALL_REDUCE = "_c10d_functional::all_reduce"
ALL_GATHER = "_c10d_functional::all_gather_into_tensor"
REDUCE_SCATTER = "_c10d_functional::reduce_scatter_tensor"
WAIT = "_c10d_functional::wait_tensor"


def reduced(x: Tensor, operation: str, group: str) -> Tensor:
    """Return the tensors of all ranks, reduced; for use in a pattern."""
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_reduce(x, operation, group))
    return waited


def gathered(shard: Tensor, size: int, group: str) -> Tensor:
    """Return the tensors of all ranks, concatenated; for use in a pattern."""
    collectives = torch.ops._c10d_functional  # noqa: SLF001 - the name of the namespace
    waited: Tensor = collectives.wait_tensor(collectives.all_gather_into_tensor(shard, size, group))
    return waited


def build_collective(build: GraphBuilder, collective: str, *args: object, val: object) -> Node:
    """Build a collective and the wait for it."""
    return build.call(WAIT, build.call(collective, *args, val=val), val=val)
