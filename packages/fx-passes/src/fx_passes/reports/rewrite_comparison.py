"""What a pass built: recorded values against what operators give, and results on inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Graph, Node

from fx_passes.graph_argument import value_of
from fx_passes.reports.wrong_fake_values import says_otherwise
from fx_passes.torch_internals import FakeTensor, OpOverload, schema_of, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fx_passes.reports.report import MatchRecord

__all__ = ["ResultComparison", "recorded_value_problem"]

# Operators of other libraries may wait for other ranks, or read what an engine keeps for a step.
_RUNNABLE = frozenset({"aten", "fx_passes", "npu", "prims"})
_COMMUNICATES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "all_to_all")
_MOST_ELEMENTS = 1 << 22
# Roundings of the dtype by which a rule that rounds elsewhere may differ.
_ROUNDINGS = 16


def recorded_value_problem(node: Node) -> str | None:
    """Return how the recorded fake value of a new call differs from what its operator gives.

    None where that cannot be told: without fake values of the arguments, or of another operator.
    """
    target, recorded = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or target.namespace not in _RUNNABLE:
        return None
    values = [value_of(each) for each in node.args]
    keywords = {name: value_of(each) for name, each in node.kwargs.items()}
    tensors = [leaf for leaf in tree_leaves((values, keywords)) if isinstance(leaf, torch.Tensor)]
    mode = next((each.fake_mode for each in tensors if isinstance(each, FakeTensor)), None)
    if mode is None or not all(isinstance(each, FakeTensor) for each in tensors):
        return None
    if not all(map(_is_static, tensors)):
        return None
    try:
        with mode:
            inferred = target(*values, **keywords)
    except Exception:  # noqa: BLE001 - an operator without a fake implementation says nothing
        return None
    pairs = zip(tree_leaves(recorded), tree_leaves(inferred), strict=False)
    for result, (have, want) in enumerate(pairs):
        problem = _difference(have, want)
        if problem is not None and not says_otherwise(schema_of(target).name, result):
            return f"`{node.name}` ({target}) is recorded as {problem}"
    return None


def _difference(have: object, want: object) -> str | None:
    if not isinstance(have, torch.Tensor) or not isinstance(want, torch.Tensor):
        return None
    if _is_empty(want) and _is_empty(have):
        # A result that the kernel leaves out.
        return None
    for what, found, wanted in (
        ("dtype", have.dtype, want.dtype),
        ("device", have.device.type, want.device.type),
        ("rank", have.dim(), want.dim()),
    ):
        if found != wanted:
            return f"{what} {found}, expected {wanted}"
    if _sizes_differ(have.shape, want.shape):
        return f"shape {list(have.shape)}, expected {list(want.shape)}"
    if _rows(want) and _sizes_differ(have.stride(), want.stride()):
        return f"strides {list(have.stride())}, expected {list(want.stride())}"
    return None


def _is_static(tensor: torch.Tensor) -> bool:
    # Comparing symbolic sizes would add guards to the graph's.
    sizes: tuple[object, ...] = (*tensor.shape, *tensor.stride())
    return all(isinstance(size, int) for size in sizes)


def _is_empty(tensor: torch.Tensor) -> bool:
    return _is_static(tensor) and 0 in tensor.shape


def _rows(tensor: torch.Tensor) -> bool:
    """Return whether there is more than one way to lay out a tensor."""
    return _is_static(tensor) and sum(size != 1 for size in tensor.shape) > 1


def _sizes_differ(left: Iterable[object], right: Iterable[object]) -> bool:
    """Return whether sizes are known to differ; symbolic ones are not told apart."""
    return any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(left, right, strict=True)
    )


class ResultComparison:
    """Computes what matches computed and what their replacements compute, on the same inputs.

    Each kind of rewrite once: a rule with the same operators and shapes is not compared again.
    """

    def __init__(self, graph: Graph) -> None:
        # A pass erases nodes and turns others into what they were not.
        copy = Graph()
        copy.graph_copy(graph, {})
        self._before: dict[str, Node] = {node.name: node for node in copy.nodes}

    def problem(
        self, graph: Graph, record: MatchRecord, *, exact: bool, seen: set[object]
    ) -> str | None:
        """Return how the results of a rewrite differ; None where they agree or cannot be computed.

        Args:
            graph: The graph after the pass.
            record: The rewrite.
            exact: Whether each bit counts.
            seen: Kinds of rewrites that were compared before; this one is added.
        """
        after = {node.name: node for node in graph.nodes}
        pairs = [
            (self._before[old], after[new])
            for old, new in record.replaced.items()
            if old in self._before and new in after
        ]
        old_side = {*record.removed, *record.replaced}
        new_side = {*record.created, *record.replaced.values()}
        known = {**after, **self._before}
        kind = tuple(
            (str(known[name].target), str(value_of(known[name])))
            for name in (*record.removed, *record.created)
            if name in known
        )
        if len(pairs) != len(record.replaced) or kind in seen:
            return None
        seen.add(kind)
        inputs: dict[str, object] = {}
        try:
            with torch.no_grad():
                results = [
                    (old.name, _run(old, old_side, inputs), _run(new, new_side, inputs))
                    for old, new in pairs
                ]
        except _CannotRunError:
            return None
        for name, wanted, found in results:
            problem = _result_problem(found, wanted, exact=exact)
            if problem is not None:
                return f"on small inputs what replaces `{name}` {problem}"
        return None


class _CannotRunError(Exception):
    """There is no kernel, or no input can be made."""


def _run(wanted: Node, inside: set[str], inputs: dict[str, object]) -> object:
    known: dict[Node, object] = {}

    def value(argument: object) -> object:
        if isinstance(argument, Node):
            if argument not in known:
                known[argument] = compute(argument)
            return known[argument]
        if isinstance(argument, (list, tuple)):
            return [value(each) for each in argument]
        return _device() if isinstance(argument, torch.device) else argument

    def compute(node: Node) -> object:
        if node.name not in inside or node.op != "call_function":
            if node.name not in inputs:
                inputs[node.name] = _input(value_of(node), len(inputs))
            return inputs[node.name]
        _require_runnable(node)
        args = [value(each) for each in node.args]
        kwargs = {name: value(each) for name, each in node.kwargs.items()}
        try:
            return node.target(*args, **kwargs)  # type: ignore[operator]  # a function
        except Exception as error:
            raise _CannotRunError(node.name) from error

    return value(wanted)


def _require_runnable(node: Node) -> None:
    target = node.target
    if not isinstance(target, OpOverload):
        return
    name = str(target)
    if (
        target.namespace not in _RUNNABLE
        or schema_of(target).is_mutable
        or torch.Tag.nondeterministic_seeded in target.tags
        or any(word in name for word in _COMMUNICATES)
    ):
        raise _CannotRunError(node.name)


def _device() -> torch.device:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")


def _input(value: object, seed: int) -> object:
    """Return something like a fake value: numbers near one, so that they can be divided by."""
    if isinstance(value, (tuple, list)):
        return [_input(each, seed + position) for position, each in enumerate(value)]
    if isinstance(value, torch.SymInt):
        return _hint(value)
    if not isinstance(value, torch.Tensor):
        raise _CannotRunError
    shape = [_hint(size) for size in value.shape]
    generator = torch.Generator().manual_seed(seed)
    if torch.Size(shape).numel() > _MOST_ELEMENTS or value.dtype.is_complex:
        raise _CannotRunError
    if value.dtype.is_floating_point:
        made = torch.rand(shape, generator=generator) + 0.5
    else:
        made = torch.randint(0, 2, shape, generator=generator)
    try:
        strides = [_hint(each) for each in value.stride()]
        laid_out = torch.empty_strided(shape, strides, dtype=value.dtype)
        return laid_out.copy_(made).to(_device())
    except RuntimeError as error:
        raise _CannotRunError from error


def _hint(size: object) -> int:
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        if not isinstance(hint, int):
            raise _CannotRunError
        return hint
    return int(size) if isinstance(size, int) else 0


def _result_problem(found: object, wanted: object, *, exact: bool) -> str | None:
    if not isinstance(found, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return None
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return (
            f"is {found.dtype} of {list(found.shape)}, expected {wanted.dtype} of "
            f"{list(wanted.shape)}"
        )
    have, want = (each.cpu().to(torch.float64) for each in (found, wanted))
    if exact or wanted.dtype == torch.bool:
        most = 0.0
    elif wanted.dtype.is_floating_point:
        scale = want.abs().max().item() if want.numel() else 0.0
        most = _ROUNDINGS * torch.finfo(wanted.dtype).eps * max(scale, 1.0)
    else:
        # A value that is rounded elsewhere may be quantised to the next number.
        most = 1.0
    worst = (have - want).abs().nan_to_num().max().item() if want.numel() else 0.0
    if worst <= most and have.isnan().equal(want.isnan()):
        return None
    return f"differs by up to {worst:g}, of which {most:g} is allowed"
