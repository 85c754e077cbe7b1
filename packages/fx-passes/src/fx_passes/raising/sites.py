"""Finds the places that raising is about: norms, RoPE, gated activations, attention."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.fx import Graph


SiteKind = Literal["norm", "rope", "activation", "attention"]
SITE_KINDS: tuple[SiteKind, ...] = ("norm", "rope", "activation", "attention")

# From a softmax to the product with the values: a cast, dropout, reshapes.
_STEPS_TO_VALUES = 5


def find_sites(graph: Graph) -> list[tuple[SiteKind, Node]]:
    """Return the places of each kind in a graph in normal form, in the order of the graph.

    The signs are wider than the patterns of the rules, so that forms which no rule knows count as
    well: a norm is a mean of squares, RoPE a `cat` or `stack` of two of which one
    is negated or which are a sum and a difference of products, or a product of complex numbers, a
    gated activation a `silu` or `gelu` that is multiplied with a tensor, attention a
    `scaled_dot_product_attention`, one of its kernels in graphs of ATen, or a softmax that leads to
    a matrix product.
    """
    return [
        (kind, node)
        for node in graph.nodes
        if node.op == "call_function"
        for kind, is_site in _SIGNS.items()
        if is_site(node)
    ]


def _is_norm(node: Node) -> bool:
    aten = torch.ops.aten
    if node.target in {aten.rms_norm.default, aten._fused_rms_norm.default}:  # noqa: SLF001
        return True
    if node.target not in {aten.mean.dim, aten.mean.default}:
        return False
    squared = node.args[0]
    if not isinstance(squared, Node):
        return False
    if squared.target is aten.pow.Tensor_Scalar:
        return literals_equal(squared.args[1], 2)
    same = len(squared.args) > 1 and squared.args[0] is squared.args[1]
    return squared.target is aten.square.default or (squared.target is aten.mul.Tensor and same)


def _is_rope(node: Node) -> bool:
    aten = torch.ops.aten
    if node.target is aten.view_as_real.default:
        return _is_call(node.args[0], aten.mul.Tensor)
    if node.target not in {aten.cat.default, aten.stack.default}:
        return False
    parts = node.args[0]
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        return False
    negated = [_is_call(each, aten.neg.default) for each in parts]
    halves = {each.target for each in parts if isinstance(each, Node) and _is_of_products(each)}
    return negated.count(True) == 1 or halves == {aten.sub.Tensor, aten.add.Tensor}


def _is_of_products(node: Node) -> bool:
    product = torch.ops.aten.mul.Tensor
    return len(node.args) == 2 and all(_is_call(each, product) for each in node.args)


def _is_call(item: object, target: object) -> bool:
    return isinstance(item, Node) and item.target is target


def _is_activation(node: Node) -> bool:
    aten = torch.ops.aten
    return node.target in {aten.silu.default, aten.gelu.default} and any(
        user.target is aten.mul.Tensor for user in node.users
    )


def _is_attention(node: Node) -> bool:
    aten = torch.ops.aten
    if node.target is aten.scaled_dot_product_attention.default:
        return True
    if str(node.target).startswith("aten._scaled_dot_product_"):
        return True
    softmax = {
        aten.softmax.int,
        aten._softmax.default,  # noqa: SLF001 - the name of the operator
        aten._safe_softmax.default,  # noqa: SLF001
    }
    products = {aten.matmul.default, aten.bmm.default}
    return node.target in softmax and any(
        user.target in products for user in _users_within(node, _STEPS_TO_VALUES)
    )


def _users_within(node: Node, steps: int) -> Iterator[Node]:
    level = [node]
    for _ in range(steps):
        level = [user for each in level for user in each.users]
        yield from level


_SIGNS: Mapping[SiteKind, Callable[[Node], bool]] = MappingProxyType(
    {
        "norm": _is_norm,
        "rope": _is_rope,
        "activation": _is_activation,
        "attention": _is_attention,
    }
)
