"""The places that raising is about, norms, RoPE, gated activations, attention; why one is left."""

from __future__ import annotations

import math
import operator
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal, value_of
from fx_passes.torch_internals import OpOverload

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
        user.target in products for user in _after(node, _STEPS_TO_VALUES, lambda _: True)
    )


_SIGNS: Mapping[SiteKind, Callable[[Node], bool]] = MappingProxyType(
    {
        "norm": _is_norm,
        "rope": _is_rope,
        "activation": _is_activation,
        "attention": _is_attention,
    }
)


# What the rules know, for places that look otherwise.
_EXPECTED: Mapping[SiteKind, str] = MappingProxyType(
    {
        "norm": "x * rsqrt(mean(x ** 2, -1) + eps), with or without a weight",
        "rope": "x * cos + rotated * sin of halves or neighbours of the last dimension",
        "activation": "silu(gate) * up or gelu(gate) * up",
        "attention": (
            "scaled_dot_product_attention, or softmax(q @ k.T * scale + mask) @ v; "
            "`attn_implementation='sdpa'` gives the former where a model has it"
        ),
    }
)
_NEAR = 6


def why_left(kind: SiteKind, node: Node) -> str:
    """Return why the rules for a kind of place do not match this one."""
    explained = _EXPLANATIONS[kind](node) if kind in _EXPLANATIONS else iter(())
    found = next(explained, f"no rule knows this spelling of {kind} by {_called(node)}")
    return f"{found}; known is {_EXPECTED[kind]}"


def _norm(mean: Node) -> Iterator[str]:
    aten = torch.ops.aten
    squares = mean.args[0]
    if not isinstance(squares, Node) or mean.target is not aten.mean.dim:
        return
    x = squares.args[0]
    dims, value = mean.args[1], value_of(squares)
    listed = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if isinstance(value, torch.Tensor) and listed not in ([-1], [value.dim() - 1]):
        yield (
            f"the mean of the squares is over the dimensions {listed} of {value.dim()}, not the "
            "last one"
        )
    if isinstance(x, Node) and _subtracts_mean(x):
        yield (
            f"`{x.name}` is x less its mean, which makes this a layer norm; "
            "torch.nn.functional.layer_norm is one kernel"
        )
    if len(mean.args) < 3 or mean.args[2] is not True:
        yield f"`{mean.name}` does not keep its dimension (keepdim=True)"
    sums = [user for user in mean.users if user.target in {aten.add.Tensor, aten.add.Scalar}]
    if not sums:
        users = ", ".join(_called(user) for user in mean.users)
        yield f"nothing is added to the mean of the squares, which goes into {users}"
        return
    roots = [user for user in _after(sums[0]) if user.target in _ROOTS]
    if not roots:
        yield f"no root is taken of `{sums[0].name}`, the mean of the squares plus epsilon"
    elif isinstance(x, Node):
        yield f"`{_origin(x).name}`, whose squares these are, is not what is divided by the root"


_ROOTS = frozenset(
    {
        torch.ops.aten.rsqrt.default,
        torch.ops.aten.sqrt.default,
        torch.ops.aten.pow.Tensor_Scalar,
    }
)


def _subtracts_mean(x: Node) -> bool:
    aten = torch.ops.aten
    if x.target is not aten.sub.Tensor or not isinstance(x.args[1], Node):
        return False
    return x.args[1].target in {aten.mean.dim, aten.mean.default}


def _rope(cat: Node) -> Iterator[str]:
    aten = torch.ops.aten
    products = [user for user in _after(cat) if user.target is aten.mul.Tensor]
    if not products:
        yield f"nothing multiplies what `{cat.name}` rotated"
        return
    sums = [user for user in _after(products[0]) if user.target is aten.add.Tensor]
    if not sums:
        yield f"`{products[0].name}`, the rotated part times the sines, is not added to x * cos"


def _attention(softmax: Node) -> Iterator[str]:
    aten = torch.ops.aten
    filled = "the scores are filled where they are masked; a mask must be added to them"
    before = {node.target: node for node in _scores_before(softmax)}
    for target, reason in (
        (aten.tanh.default, "the scores are capped by tanh; no attention kernel does that"),
        (
            aten.where.self,
            "the scores are replaced where they are masked; a mask must be added to them",
        ),
        (aten.masked_fill.Scalar, filled),
        (aten.masked_fill.Tensor, filled),
        (
            aten.baddbmm.default,
            "the scores come with a bias of each head (ALiBi) out of one product (baddbmm)",
        ),
        (aten.bmm.default, "batch and heads are one dimension (bmm); expected [batch, heads, ...]"),
        (aten.einsum.default, "the scores are computed by einsum"),
        (aten.topk.default, "only the largest scores are kept (topk)"),
    ):
        if target in before:
            yield f"{reason} (`{before[target].name}`)"


def _passes_on(node: Node) -> bool:
    names = {"to", "_to_copy", "view", "reshape", "flatten", "reciprocal", "type_as", "unsqueeze"}
    return node.target is operator.getitem or _name_of(node) in names


def _after(
    node: Node, steps: int = _NEAR, passes_on: Callable[[Node], bool] = _passes_on
) -> Iterator[Node]:
    """Yield the users of a value, also through reshapes and casts, or what else passes it on."""
    pending = [node]
    for _ in range(steps):
        users = [user for each in pending for user in each.users]
        yield from users
        pending = [user for user in users if passes_on(user)]


def _scores_before(softmax: Node) -> Iterator[Node]:
    """Yield the nodes with as many elements as the scores that lead to their softmax."""
    size = _size(softmax)
    pending = [softmax]
    for _ in range(_NEAR):
        inputs = [each for below in pending for each in below.all_input_nodes]
        pending = [each for each in inputs if _size(each) == size]
        yield from pending


def _size(node: Node) -> object:
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return None
    sizes: list[object] = list(value.shape)
    return math.prod(each for each in sizes if isinstance(each, int))


def _origin(x: Node) -> Node:
    return x.all_input_nodes[0] if _name_of(x) in {"to", "_to_copy"} and x.all_input_nodes else x


def _name_of(node: Node) -> str:
    target = node.target
    return str(target).split(".")[1] if isinstance(target, OpOverload) else ""


def _called(node: Node) -> str:
    return f"`{node.name}` ({node.target})" if isinstance(node.target, OpOverload) else node.name


_EXPLANATIONS: Mapping[SiteKind, Callable[[Node], Iterator[str]]] = MappingProxyType(
    {"norm": _norm, "rope": _rope, "attention": _attention}
)
