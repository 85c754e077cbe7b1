"""What a pass built: recorded values against what operators give, and results on inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from fx_passes.graph_argument import value_of
from fx_passes.rewriting.recorded_values import fake_result
from fx_passes.torch_internals import FakeTensor, OpOverload, schema_of, tree_leaves, without_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fx_passes.reports.report import MatchRecord


# Operators of other libraries may wait for other ranks, or read what an engine keeps for a step.
_RUNNABLE = frozenset({"aten", "fx_passes", "npu", "prims"})
_COMMUNICATES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "all_to_all")
_MOST_ELEMENTS = 1 << 22
# Roundings of the dtype by which a rule that rounds elsewhere may differ.
_ROUNDINGS = 16
# So far back is looked for what inputs are computed from.
_STEPS_BACK = 8
# torch_npu 2.10.0.post4, seen against its own kernels over simulated CANN; mended in 2.11. The
# rotary kernel gives a contiguous result whatever its input is; the scales of the masked half of
# the other are empty.
_WRONG_IN_TORCH_2_10 = frozenset(
    {("npu::npu_rotary_mul", 0), ("npu::npu_add_rms_norm_dynamic_quant", 4)}
)


def recorded_value_problem(node: Node) -> str | None:
    """Return how the recorded fake value of a new call differs from what its operator gives.

    None where that cannot be known: without fake values of the arguments, or of another operator.
    """
    target, recorded = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or target.namespace not in _RUNNABLE:
        return None
    values = [value_of(each) for each in node.args]
    keywords = {name: value_of(each) for name, each in node.kwargs.items()}
    tensors = [leaf for leaf in tree_leaves((values, keywords)) if isinstance(leaf, torch.Tensor)]
    if not tensors or not all(
        isinstance(each, FakeTensor) and _is_static(each) for each in tensors
    ):
        return None
    try:
        inferred = fake_result(target, values, keywords)
    except Exception:  # noqa: BLE001 - an operator without a fake implementation says nothing
        return None
    pairs = zip(tree_leaves(recorded), tree_leaves(inferred), strict=False)
    for result, (have, want) in enumerate(pairs):
        problem = _difference(have, want)
        if problem is not None and not _says_otherwise(schema_of(target).name, result):
            return f"`{node.name}` ({target}) is recorded as {problem}"
    return None


def _says_otherwise(operator: str, result: int) -> bool:
    """Return whether the fake implementation of an operator is wrong about one of its results."""
    major, minor, *_ = torch.__version__.split(".")
    return (int(major), int(minor)) < (2, 11) and (operator, result) in _WRONG_IN_TORCH_2_10


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
    # Kernels of torch_npu give contiguous results, also where fake implementations keep strides.
    as_kernels = have.device.type == "npu" and _is_static(have) and have.is_contiguous()
    if _rows(want) and not as_kernels and _sizes_differ(have.stride(), want.stride()):
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
    """Return whether sizes are known to differ; symbolic ones are not distinguished."""
    return any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(left, right, strict=True)
    )


class ResultComparison:
    """Computes what matches computed and what their replacements compute, on the same inputs.

    Each kind of rewrite once: a rule with the same operators and shapes is not compared again.
    Inputs are drawn, but for those that the graph computes from others: a scale is drawn and not
    its reciprocal, where the match reads the one and the replacement the other.

    Args:
        graph: The graph before a pass.

    Attributes:
        undecided: For rewrites that were not compared, the name of the anchor and why.
    """

    def __init__(self, graph: Graph) -> None:
        # A pass erases nodes and turns others into what they were not.
        copy = Graph()
        copy.graph_copy(graph, {})
        self._before: dict[str, Node] = {node.name: node for node in copy.nodes}
        self.undecided: list[tuple[str, str]] = []

    def problem(
        self,
        graph: Graph,
        record: MatchRecord,
        *,
        replaced: Mapping[str, str],
        seen: set[object],
    ) -> str | None:
        """Return how the results of a rewrite differ; None where they agree or are not decided.

        Args:
            graph: The graph after the pass.
            record: The rewrite.
            replaced: For each node that the pass replaced the node in its place.
            seen: Kinds of rewrites that were compared before; this one is added.
        """
        after = {node.name: node for node in graph.nodes}
        pairs = [
            (self._before[old], after[new])
            for old, new in record.replaced.items()
            if old in self._before and new in after
        ]
        known = {**after, **self._before}
        kind = tuple(
            (str(known[name].target), str(value_of(known[name])))
            for name in (*record.removed, *record.created)
            if name in known
        )
        if len(pairs) != len(record.replaced) or kind in seen:
            return None
        seen.add(kind)
        # What was there before is an input; an output that became an element of a new call is not.
        stayed = {old for old, new in record.replaced.items() if old == new}
        opened: dict[str, Node] = {}
        old_side = _Side({*record.removed, *record.replaced}, replaced, opened)
        new_side = _Side({*record.created, *stayed}, replaced, opened)
        inputs: dict[str, object] = {}
        try:
            self._open(pairs, old_side, new_side, opened)
            with torch.no_grad(), without_modes():
                results = [
                    (old.name, old_side.run(old, inputs), new_side.run(new, inputs))
                    for old, new in pairs
                ]
        except _CannotRunError as error:
            self.undecided.append((record.anchor, str(error)))
            return None
        sides = (*record.removed, *record.replaced, *record.created, *record.replaced.values())
        nodes = [side[name] for side in (self._before, after) for name in sides if name in side]
        exact = record.exact
        rounding = 0.0 if exact else max(map(_rounding, nodes), default=0.0)
        for name, wanted, found in results:
            with without_modes():
                problem = _result_problem(found, wanted, rounding, exact=exact)
            if problem is not None:
                return f"on small inputs what replaces `{name}` {problem}"
        return None

    def _open(
        self,
        pairs: Sequence[tuple[Node, Node]],
        old_side: _Side,
        new_side: _Side,
        opened: dict[str, Node],
    ) -> None:
        """Let inputs that only one side reads be computed from what both read."""
        for _ in range(_STEPS_BACK):
            ours = old_side.inputs_of(old for old, _ in pairs)
            theirs = new_side.inputs_of(new for _, new in pairs)
            if theirs.keys() <= ours.keys():
                return
            more = _open_what_belongs_together(ours, theirs, self._before)
            if more.keys() <= opened.keys():
                break
            opened.update(more)
        raise _CannotRunError("it is not known how the inputs of the replacement are computed")


class _CannotRunError(Exception):
    """There is no kernel, no input can be made, or it is not known which inputs go together."""


class _Side:
    """A match, or what replaces it: which nodes are run, and which are inputs.

    Args:
        inside: Names of the nodes that are run.
        replaced: For each node that the pass replaced the node in its place; they are one input.
        opened: Inputs that are computed from others all the same, by name; common to both sides.
    """

    def __init__(
        self, inside: set[str], replaced: Mapping[str, str], opened: Mapping[str, Node]
    ) -> None:
        self._inside = inside
        self._replaced = replaced
        self._opened = opened
        self._known: dict[Node, object] = {}

    def _name(self, node: Node) -> str:
        """Return the name of an input, the same on both sides."""
        name, seen = node.name, {node.name}
        while (name := self._replaced.get(name, name)) not in seen:
            seen.add(name)
        return name

    def _computed(self, node: Node) -> Node | None:
        """Return the call that is run for a node; None for an input."""
        found = node if node.name in self._inside else self._opened.get(node.name)
        return found if found is not None and found.op == "call_function" else None

    def inputs_of(self, wanted: Iterable[Node]) -> dict[str, Node]:
        """Return the inputs of what is wanted, by name."""
        found: dict[str, Node] = {}
        pending, seen = list(wanted), set(wanted)
        while pending:
            node = pending.pop()
            call = self._computed(node)
            if call is None:
                found[self._name(node)] = node
                continue
            pending += [each for each in call.all_input_nodes if each not in seen]
            seen.update(call.all_input_nodes)
        return found

    def run(self, wanted: Node, inputs: dict[str, object]) -> object:
        """Return what a node computes.

        Args:
            wanted: The node.
            inputs: Values of the inputs by name; those that are missing are drawn.
        """

        def value(argument: object) -> object:
            if isinstance(argument, Node):
                if argument not in self._known:
                    self._known[argument] = compute(argument)
                return self._known[argument]
            if isinstance(argument, (list, tuple)):
                return [value(each) for each in argument]
            return _device() if isinstance(argument, torch.device) else argument

        def compute(node: Node) -> object:
            call = self._computed(node)
            if call is None:
                name = self._name(node)
                if name not in inputs:
                    inputs[name] = _input(node, len(inputs))
                return inputs[name]
            _require_runnable(call)
            args = [value(each) for each in call.args]
            kwargs = {name: value(each) for name, each in call.kwargs.items()}
            try:
                return call.target(*args, **kwargs)  # type: ignore[operator]  # a function
            except Exception as error:
                raise _CannotRunError(f"`{call.name}` does not run here: {error}") from error

        return value(wanted)


def _open_what_belongs_together(
    ours: Mapping[str, Node], theirs: Mapping[str, Node], before: Mapping[str, Node]
) -> dict[str, Node]:
    """Return inputs, and what leads to them, that the graph computes from what both sides can read.

    Only one side reads a scale, the other its reciprocal: drawn apart they would not fit.

    Raises:
        _CannotRunError: The graph does not show what they have to do with each other.
    """
    foreign = [node for name, node in theirs.items() if name not in ours]
    missing = [node for name, node in ours.items() if name not in theirs] or list(ours.values())
    cones = [
        [_cone(before[node.name]) for node in side if node.name in before]
        for side in (foreign, missing)
    ]
    reached = [set[Node]().union(*each) for each in cones]
    common = reached[0] & reached[1]
    opened = {
        node.name: node
        for node in (reached[0] | reached[1]) - common
        if not common.isdisjoint(_cone(node))
    }
    if len(cones[0]) == len(foreign) and opened:
        return opened
    raise _CannotRunError(
        f"the replacement reads {', '.join(f'`{node.name}`' for node in foreign)}, and the graph "
        "does not show what that has to do with what the match read"
    )


def _cone(node: Node) -> set[Node]:
    """Return a node and what it is computed from, a few steps back."""
    found, edge = {node}, {node}
    for _ in range(_STEPS_BACK):
        edge = {each for one in edge for each in one.all_input_nodes} - found
        found |= edge
    return found


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
        raise _CannotRunError(f"calls of {name} are not run")


def _device() -> torch.device:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")


def _input(node: Node, seed: int) -> object:
    """Return something like a node's fake value: numbers near one, so that they can divide."""
    try:
        return _drawn(value_of(node), seed)
    except _CannotRunError as error:
        raise _CannotRunError(f"no input can be made for `{node.name}`{error}") from error


def _drawn(value: object, seed: int) -> object:
    if isinstance(value, (tuple, list)):
        return [_drawn(each, seed + position) for position, each in enumerate(value)]
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return _hint(value)
    if not isinstance(value, torch.Tensor):
        raise _CannotRunError(": its fake value is not known")
    shape = [_hint(size) for size in value.shape]
    generator = torch.Generator().manual_seed(seed)
    if torch.Size(shape).numel() > _MOST_ELEMENTS or value.dtype.is_complex:
        raise _CannotRunError(f": it is {value.dtype} of {shape}")
    if value.dtype.is_floating_point:
        made = torch.rand(shape, generator=generator, device="cpu") + 0.5
    else:
        made = torch.randint(0, 2, shape, generator=generator, device="cpu")
    try:
        strides = [_hint(each) for each in value.stride()]
        laid_out = torch.empty_strided(shape, strides, dtype=value.dtype, device="cpu")
        return laid_out.copy_(made).to(_device())
    except RuntimeError as error:
        raise _CannotRunError(f": {error}") from error


def _hint(size: object) -> Any:
    if not isinstance(size, (torch.SymInt, torch.SymFloat)):
        return size if isinstance(size, int) else 0
    hint = size.node.hint
    if not isinstance(hint, (int, float)):
        raise _CannotRunError(f": the size {size} has no example")
    return hint


def _rounding(node: Node) -> float:
    """Return by how much of a value it is rounded that is a result of a node."""
    return max(
        (
            torch.finfo(value.dtype).eps
            for value in tree_leaves(value_of(node))
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        ),
        default=0.0,
    )


def _result_problem(found: object, wanted: object, rounding: float, *, exact: bool) -> str | None:
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
        scale = want.abs().nan_to_num().max().item() if want.numel() else 0.0
        # What is float32 may have been bfloat16 in between.
        most = _ROUNDINGS * max(rounding, torch.finfo(wanted.dtype).eps) * max(scale, 1.0)
    else:
        # A value that is rounded elsewhere may be quantised to the next number.
        most = 1.0
    worst = (have - want).abs().nan_to_num().max().item() if want.numel() else 0.0
    if worst <= most and have.isnan().equal(want.isnan()):
        return None
    return f"differs by up to {worst:g}, of which {most:g} is allowed"
