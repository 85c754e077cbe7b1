"""The opening of QKV fusions: the split of the projections and the norms of q and k by heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.graph_argument import literals_equal
from fx_passes.matching.combined_pattern import combine
from fx_passes.matching.match import Match, NoMatch
from fx_passes.matching.pattern import label
from fx_passes.matching.requirements import (
    dtype_in,
    rank_is,
    same_dtype,
    same_shape,
    sizes_equal,
)
from fx_passes.operators.split_qkv_rms_norm_rope import OPERATOR, define_operators
from fx_passes.operators.vendor_kernel import QkvCall, VendorKernel
from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from fx_passes.matching.combined_pattern import Link, Linked
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.rewriting.rule import Check, Pattern


def _reshaped(
    qkv: Tensor,
    sizes: Sequence[int],
    split_dim: int,
    q_shape: Sequence[int],
    k_shape: Sequence[int],
) -> Linked:
    parts = torch.ops.aten.split_with_sizes(qkv, sizes, split_dim)
    return (parts[0].reshape(q_shape), parts[1].reshape(k_shape)), {"v": parts[2]}


def _unflattened(
    qkv: Tensor,
    sizes: Sequence[int],
    split_dim: int,
    q_dim: int,
    q_shape: Sequence[int],
    k_dim: int,
    k_shape: Sequence[int],
) -> Linked:
    cut = torch.ops.aten.unflatten.int
    parts = torch.ops.aten.split_with_sizes(qkv, sizes, split_dim)
    return (cut(parts[0], q_dim, q_shape), cut(parts[1], k_dim, k_shape)), {"v": parts[2]}


def _normed(
    heads: tuple[Tensor, Tensor],
    q_weight: Tensor,
    k_weight: Tensor,
    q_epsilon: float,
    k_epsilon: float,
) -> Linked:
    norm = torch.ops.npu.npu_rms_norm
    q = norm(heads[0], q_weight, q_epsilon)[0]
    k = norm(heads[1], k_weight, k_epsilon)[0]
    return (label(q, "q_heads"), label(k, "k_heads")), {}


def _shifted(heads: tuple[Tensor, Tensor], q_bias: Tensor, k_bias: Tensor) -> Linked:
    q, k = heads
    return (q + q_bias, k + k_bias), {}


def normed_heads_patterns(*closing: Link) -> tuple[Pattern, ...]:
    """Return the patterns of q and k cut into heads and normalised, a bias or none, further links.

    Their inputs are `qkv` [T, sizes], `sizes`, `split_dim`, `q_shape` and `k_shape` to which q and
    k are reshaped, `q_weight`, `k_weight`, `q_epsilon`, `k_epsilon`, perhaps `q_bias` and `k_bias`,
    and those of the links; the output `v` is the third part, the labels `q_heads` and `k_heads` are
    on the norms.
    """
    return combine(_reshaped, _normed, *closing), combine(_reshaped, _normed, _shifted, *closing)


def unflattened_heads_pattern(*closing: Link) -> Pattern:
    """Return the pattern of q and k cut into heads by `unflatten` and normalised, further links.

    Otherwise as `normed_heads_patterns`, without a bias. Only graphs of Dynamo have `unflatten`: in
    graphs of ATen it is a view.
    """
    return combine(_unflattened, _normed, *closing)


def heads_problem(match: Match) -> NoMatch | None:
    """Return why q, k and v are not heads of one size, normalised alike.

    Reads `qkv`, `sizes`, `split_dim`, `q_weight`, `k_weight`, `q_bias`, `k_bias`, `q_epsilon`,
    `k_epsilon` and the labels `q_heads` and `k_heads`, q and k cut into heads.
    """
    biases = [name for name in ("q_bias", "k_bias") if name in match.bound]
    return (
        rank_is(match, 2, "qkv")
        or rank_is(match, 1, "q_weight", "k_weight")
        or same_shape(match, "q_weight", "k_weight", *biases)
        or same_dtype(match, "qkv", "q_weight", "k_weight", *biases)
        or dtype_in(match, "qkv", torch.bfloat16, torch.float16, torch.float32)
        or _literal_problem(match)
        or _size_problem(match)
    )


def _literal_problem(match: Match) -> NoMatch | None:
    """Return the problem with the dimension or the epsilons."""
    bound = match.bound
    if bound["split_dim"] not in {-1, 1}:
        return NoMatch(f"the split is along dimension {bound['split_dim']}, not the last")
    epsilons = bound["q_epsilon"], bound["k_epsilon"]
    if not all(isinstance(each, (int, float, Node)) for each in epsilons):
        return NoMatch(f"the epsilons {epsilons} are no numbers")
    if epsilons[0] is epsilons[1] or literals_equal(*epsilons):
        return None
    if any(isinstance(each, Node) for each in epsilons):
        return NoMatch(
            f"the epsilons of the norms of q and k, `{epsilons[0]}` and `{epsilons[1]}`, are "
            "inputs of the graph and not known to be equal; compile with dynamic=None and mark "
            "the number of tokens as dynamic (torch._dynamo.mark_dynamic), which keeps them numbers"
        )
    return NoMatch(f"the norm of q has epsilon {epsilons[0]}, that of k {epsilons[1]}")


def _size_problem(match: Match) -> NoMatch | None:
    """Return the problem with the sizes of the heads."""
    weight, q_heads, k_heads = map(match.tensor, ("q_weight", "q_heads", "k_heads"))
    size, sizes = weight.shape[0], match.bound["sizes"]
    parts = list(sizes) if isinstance(sizes, (list, tuple)) else []
    if not all(isinstance(each, int) for each in (size, *parts)):
        return NoMatch(f"head counts and sizes must be numbers, found {parts} and {size}")
    if len(parts) != 3 or parts[1] != parts[2] or any(part % size for part in parts):
        return NoMatch(f"the split sizes {parts} do not give heads of {size} and a v like k")
    for name, heads in (("q", q_heads), ("k", k_heads)):
        if not sizes_equal(heads.shape[-1], size):
            return NoMatch(f"`{name}` is cut into {list(heads.shape)}; expected heads of {size}")
    return None


def call_of(
    match: Match,
    rotary_dim: int,
    angles: Callable[[GraphBuilder], tuple[Node, Node]],
    cache: tuple[Node, Node] | None = None,
) -> QkvCall:
    """Return the call to build for a match that `heads_problem` accepts; see `QkvCall`."""
    bound, head_dim = match.bound, match.tensor("q_weight").shape[0]
    sizes, epsilon = bound["sizes"], bound["q_epsilon"]
    if not isinstance(sizes, (list, tuple)) or not isinstance(epsilon, (int, float, Node)):
        raise RuleError(f"building {OPERATOR}: the match was not checked")
    return QkvCall(
        num_heads=sizes[0] // head_dim,
        num_kv_heads=sizes[1] // head_dim,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        qkv=match.node("qkv"),
        q_weight=match.node("q_weight"),
        k_weight=match.node("k_weight"),
        q_bias=match.node("q_bias") if "q_bias" in bound else None,
        k_bias=match.node("k_bias") if "k_bias" in bound else None,
        angles=angles,
        cache=cache,
        eps=epsilon if isinstance(epsilon, Node) else float(epsilon),
    )


def heads_rule(
    name: str,
    patterns: tuple[Pattern, ...],
    operators: tuple[str, ...],
    *,
    problem: Check,
    call: Callable[[Match], QkvCall],
    kernels: tuple[VendorKernel, ...],
    soc: str,
    without: str,
    accepts_cost: bool = False,
) -> Rule:
    """Return the rule that replaces matches by the first vendor kernel that is able.

    Without a kernel the fused operator runs by its reference, which launches one operator after the
    other and so is not better than what it replaces.
    """
    kernels = tuple(kernel for kernel in kernels if kernel.runs_on(soc))

    def check(match: Match) -> NoMatch | None:
        unmet = problem(match)
        if unmet is not None or not kernels:
            return unmet
        wanted = call(match)
        reasons = {kernel.operator: kernel.why_not(wanted) for kernel in kernels}
        if None in reasons.values():
            return None
        why = "; ".join(f"{operator}: {reason}" for operator, reason in reasons.items())
        return NoMatch(f"no vendor kernel, and without one {without}; {why}")

    def rewrite(match: Match, build: GraphBuilder) -> dict[str, Node]:
        wanted = call(match)
        kernel = next((each for each in kernels if each.why_not(wanted) is None), None)
        built = _reference(wanted, build) if kernel is None else kernel.build(wanted, build)
        results = dict(zip(("q", "k", "v"), built, strict=True))
        needed = [each for each in results if each in match.needed]
        return {each: _shaped(results[each], match, each, build) for each in needed}

    return Rule(
        name=f"fuse_split_qkv_rms_norm_{name}",
        patterns=patterns,
        check=check,
        rewrite=rewrite,
        operators=("npu::npu_rms_norm", "npu::npu_rotary_mul", *operators),
        numerics="rounding" if kernels else "exact",
        accepts_cost=accepts_cost,
        prepare=define_operators,
    )


def _reference(call: QkvCall, build: GraphBuilder) -> tuple[Node, Node, Node]:
    qkv = call.qkv.meta.get("val")
    if not isinstance(qkv, torch.Tensor):
        raise RuleError(f"building {OPERATOR}: `{call.qkv.name}` has no tensor metadata")
    biases = (call.q_bias, call.k_bias) if call.q_bias is not None else ()
    cos, sin = call.angles(build)
    fused = build.call(
        OPERATOR,
        call.qkv,
        call.q_weight,
        call.k_weight,
        cos,
        sin,
        call.num_heads,
        call.num_kv_heads,
        call.head_dim,
        call.eps,
        *biases,
        val=tuple(
            qkv.new_empty((qkv.shape[0], count, call.head_dim))
            for count in (call.num_heads, call.num_kv_heads, call.num_kv_heads)
        ),
    )
    return build.element(fused, 0), build.element(fused, 1), build.element(fused, 2)


def _shaped(result: Node, match: Match, name: str, build: GraphBuilder) -> Node:
    """Return a result [T, heads, head_dim] as the pattern's output has it, that or [T, size]."""
    wanted, value = match.tensor(name), result.meta["val"]
    if wanted.dim() == value.dim():
        return result
    size = value.shape[1] * value.shape[2]
    return build.call("aten::reshape", result, [-1, size], val=wanted.new_empty(wanted.shape))
