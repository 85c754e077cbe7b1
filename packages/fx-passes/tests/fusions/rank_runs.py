"""Runs the graphs of all ranks of a group in one process, to test their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx import Interpreter, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import GraphModule

_COLLECTIVES = ("_c10d_functional.", "npu.npu_mm_all_reduce_base.")


def run_ranks(modules: Sequence[GraphModule], inputs: Sequence[Sequence[object]]) -> list[object]:
    """Run a graph on each rank, node by node in lockstep, and perform the collectives between them.

    All collectives are assumed to use one group of all ranks, and sums are computed in float32. The
    tensors may be on one device.

    Args:
        modules: The graph of each rank; all have the same operators in the same order.
        inputs: The inputs of each rank, in the order of the placeholders.

    Returns:
        The outputs of each rank.

    Raises:
        AssertionError: The graphs differ in their order of operators.
    """
    ranks = [Interpreter(module) for module in modules]
    for rank, given in zip(ranks, inputs, strict=True):
        rank.args_iter = iter(given)
    result: list[object] = []
    for nodes in zip(*(module.graph.nodes for module in modules), strict=True):
        if len({str(node.target) for node in nodes if node.op == "call_function"}) > 1:
            raise AssertionError(f"the ranks run {[node.format_node() for node in nodes]} at once")
        if str(nodes[0].target).startswith(_COLLECTIVES):
            result = _collective(ranks, nodes)
        else:
            result = [rank.run_node(node) for rank, node in zip(ranks, nodes, strict=True)]
        for rank, node, value in zip(ranks, nodes, result, strict=True):
            rank.env[node] = value
    return result


def _collective(ranks: Sequence[Interpreter], nodes: Sequence[Node]) -> list[object]:
    given = [rank.fetch_args_kwargs_from_env(node) for rank, node in zip(ranks, nodes, strict=True)]
    values = [args[0] for args, _ in given]
    tensors = [value for value in values if isinstance(value, Tensor)]
    name = str(nodes[0].target).removeprefix("_c10d_functional.").removesuffix(".default")
    if name == "wait_tensor":
        return list(values)
    if name == "all_gather_into_tensor":
        return [torch.cat(tensors) for _ in ranks]
    if name == "npu.npu_mm_all_reduce_base":
        tensors = [_product(args, kwargs) for args, kwargs in given]
    total = torch.stack([tensor.float() for tensor in tensors]).sum(0).to(tensors[0].dtype)
    if name == "reduce_scatter_tensor":
        return list(total.chunk(len(ranks)))
    if name in {"all_reduce", "npu.npu_mm_all_reduce_base"}:
        return [total.clone() for _ in ranks]
    raise AssertionError(f"running several ranks: the collective {name} is not known")


def _product(args: Sequence[object], kwargs: dict[str, object]) -> Tensor:
    x, weight, bias = args[0], args[1], kwargs.get("bias")
    if not isinstance(x, Tensor) or not isinstance(weight, Tensor):
        raise AssertionError(f"npu_mm_all_reduce_base of {x!r} and {weight!r}")  # noqa: TRY004 - a test failed, not a call
    product = x @ weight
    return product + bias if isinstance(bias, Tensor) else product
