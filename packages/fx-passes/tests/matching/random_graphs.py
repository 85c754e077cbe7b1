"""Random graphs and random rules with known invariants."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from fx_passes.rewriting.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from fx_passes.matching.match import Match
    from fx_passes.rewriting.graph_builder import GraphBuilder
    from fx_passes.torch_internals import OpOverload

aten = torch.ops.aten
RANDOM_GRAPH_SHAPE = (2, 4)
_UNARY = (aten.neg.default, aten.abs.default, aten.sin.default, aten.clone.default)
_BINARY = (aten.add.Tensor, aten.mul.Tensor, aten.maximum.default)
_VIEWS: tuple[tuple[OpOverload, tuple[object, ...]], ...] = (
    (aten.view.default, ([4, 2],)),
    (aten.t.default, ()),
    (aten.flip.default, ([0],)),
)
_WRITES = (aten.neg_.default, aten.abs_.default)


def random_graph(
    random: Random, *, steps: int = 12, dtype: torch.dtype = torch.float32
) -> GraphModule:
    """Return a module of three inputs with views, writes through views, and values used twice.

    Args:
        random: Where choices come from; the same choices give the same graph.
        steps: How many steps the graph has, of one to four nodes each.
        dtype: Of all tensors; an integer or floating-point one.

    Returns:
        The module. Its inputs are tensors of `RANDOM_GRAPH_SHAPE`, which it may write; it returns a
        tuple of tensors of that shape. Nodes have metadata, on `meta`.
    """
    writer = _GraphWriter(random, dtype)
    for _ in range(steps):
        writer.step()
    return writer.finish()


class _GraphWriter:
    def __init__(self, random: Random, dtype: torch.dtype) -> None:
        self._random = random
        # The sine of an integer is none.
        keeps = dtype.is_floating_point
        self._unary = [each for each in _UNARY if keeps or each is not aten.sin.default]
        self._graph = Graph()
        self._values = [self._graph.placeholder(name) for name in "abc"]
        for node in self._values:
            node.meta["val"] = torch.empty(RANDOM_GRAPH_SHAPE, dtype=dtype, device="meta")

    def _call(self, target: OpOverload, *args: object) -> Node:
        value = target(*[each.meta["val"] if isinstance(each, Node) else each for each in args])
        node = self._graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = value
        return node

    def step(self) -> None:
        random, values = self._random, self._values
        # Recent values are drawn more often, so that chains and writes between them are.
        value = random.choice(values[-3:] if random.randint(0, 1) else values)
        kind = random.choice(("unary", "binary", "interrupted", "view", "write"))
        if kind == "unary":
            values.append(self._call(random.choice(self._unary), value))
        elif kind == "binary":
            values.append(self._call(random.choice(_BINARY), value, random.choice(values)))
        elif kind == "interrupted":
            first = self._call(random.choice(self._unary), value)
            if random.randint(0, 1):
                self._call(random.choice(_WRITES), random.choice((value, first)))
            values += [first, self._call(random.choice(_BINARY), first, random.choice(values))]
        elif kind == "view":
            target, arguments = random.choice(_VIEWS)
            view = self._call(target, value, *arguments)
            values.append(self._call(aten.reshape.default, view, list(RANDOM_GRAPH_SHAPE)))
        else:
            self._call(random.choice(_WRITES), value)

    def finish(self) -> GraphModule:
        count = self._random.randint(1, 4)
        results = [self._random.choice(self._values[3:] or self._values) for _ in range(count)]
        self._graph.output(tuple(results))
        return GraphModule(torch.nn.Module(), self._graph)


@dataclass(frozen=True)
class _Expression:
    """Operators over parameters; arguments are numbers of parameters, then of calls."""

    parameters: int
    calls: tuple[tuple[OpOverload, tuple[int, ...]], ...]
    outputs: tuple[int, ...]

    def pattern(self, *values: Tensor) -> dict[str, Tensor]:
        computed = list(values)
        for target, arguments in self.calls:
            computed.append(target(*[computed[each] for each in arguments]))
        return {f"out{each}": computed[each] for each in self.outputs}

    def rewrite(self, match: Match, build: GraphBuilder) -> dict[str, Node]:
        computed = [match.bound[f"x{number}"] for number in range(self.parameters)]
        for target, arguments in self.calls:
            # Turning a sign twice gives the same bits, and other nodes than those replaced.
            node = build.call("aten::neg", build.call(target, *[computed[n] for n in arguments]))
            computed.append(build.call("aten::neg", node))
        found = {f"out{each}": computed[each] for each in self.outputs}
        return {name: node for name, node in found.items() if isinstance(node, Node)}


def random_rule(random: Random, name: str) -> Rule:
    """Return a rule that replaces a random expression by an equal one, bit for bit.

    The expression has one to four operators, one or two of them first in a chain, every result that
    nothing uses as an output, and perhaps others.

    Args:
        random: Where choices come from; the same choices give the same rule.
        name: Name of the rule.
    """
    parameters = random.randint(1, 2)
    calls: list[tuple[OpOverload, tuple[int, ...]]] = []
    for number in range(random.randint(1, 4)):
        known = parameters + number
        last = known - 1 if number else 0
        if random.randint(0, 1) or known == 1:
            calls.append((random.choice(_UNARY), (last,)))
        else:
            other = random.randint(0, known - 1)
            calls.append((random.choice(_BINARY), (last, other)))
    used = {argument for _, arguments in calls for argument in arguments}
    results = range(parameters, parameters + len(calls))
    outputs = tuple(each for each in results if each not in used or random.randint(0, 2) == 0)
    kept = [number for number in range(parameters) if number in used]
    # A parameter that nothing uses would match anything.
    moved = {number: position for position, number in enumerate(kept)}
    moved.update({each: each - parameters + len(kept) for each in results})
    expression = _Expression(
        parameters=len(kept),
        calls=tuple((target, tuple(moved[n] for n in arguments)) for target, arguments in calls),
        outputs=tuple(moved[each] for each in outputs),
    )
    return Rule(name=name, patterns=(_with_parameters(expression),), rewrite=expression.rewrite)


def _with_parameters(expression: _Expression) -> Callable[..., dict[str, Tensor]]:
    def pattern(*values: Tensor) -> dict[str, Tensor]:
        return expression.pattern(*values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names: Sequence[str] = [f"x{number}" for number in range(expression.parameters)]
    parameters = [inspect.Parameter(name, kind, annotation="Tensor") for name in names]
    pattern.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return pattern
