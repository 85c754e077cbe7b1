"""Traces functions on fake tensors made of example inputs; no device is touched."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from fx_passes.errors import PatternError
from fx_passes.torch_internals import (
    ConstantSource,
    FakeTensorMode,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.fx import Graph


# Any factor that no literal of a model is a multiple of by chance.
_OTHER_FLOAT = 1.0390625
_AS_GIVEN: Mapping[str, torch.dtype] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class TracedFunction:
    """The graph of a traced function.

    Attributes:
        graph: The graph; placeholders are the tensor parameters, by name.
        outputs: The nodes returned, flattened.
        scalars: Literals in the graph that are parameters: maps (node, position among the leaves of
            its arguments) to the name.
    """

    graph: Graph
    outputs: tuple[Node, ...]
    scalars: Mapping[tuple[Node, int], str]

    def open_scalars(self) -> tuple[str, ...]:
        """Let a placeholder stand for each scalar in the graph; return the names of these."""
        opened: dict[str, Node] = {}
        first = next(iter(self.graph.nodes))
        for (node, position), name in self.scalars.items():
            if name not in opened:
                with self.graph.inserting_before(first):
                    opened[name] = self.graph.placeholder(name)
                opened[name].meta["val"] = 0.5
            leaves, spec = tree_flatten((node.args, node.kwargs))
            leaves[position] = opened[name]
            node.args, node.kwargs = tree_unflatten(leaves, spec)
        return tuple(opened)


class ExampleTracer:
    """Traces functions on tensors whose sizes are symbols.

    Args:
        parameters: Names of the functions' parameters, tensors and scalars, in order.
        examples: Example tensors, or a function that creates them, called under a fake mode, so
            that it may name a device that does not exist. Ranks, dtypes, devices and sizes of 0 or
            1 count; other sizes are symbols.
        scalars: Values of the parameters that are not tensors. A float represents any float.
        dtypes: Dtypes that replace those of the examples, by parameter.

    Attributes:
        shapes: The environment of the symbols, whose guards held while the functions were traced.
        tensors: The symbolic fake tensors, by name of the parameter.
    """

    def __init__(
        self,
        parameters: Sequence[str],
        examples: Sequence[torch.Tensor] | Callable[[], Sequence[torch.Tensor]],
        scalars: Mapping[str, object],
        dtypes: Mapping[str, torch.dtype] = _AS_GIVEN,
    ) -> None:
        self._parameters = tuple(parameters)
        self._scalars = dict(scalars)
        self.shapes = ShapeEnv(duck_shape=False)
        self._mode = FakeTensorMode(shape_env=self.shapes, allow_non_fake_inputs=True)
        if callable(examples):
            try:
                with FakeTensorMode():
                    examples = examples()
            except Exception as error:
                raise PatternError(
                    f"making example inputs: {type(error).__name__}: {error}"
                ) from error
        names = [name for name in self._parameters if name not in self._scalars]
        if len(names) != len(examples) or not self._scalars.keys() <= set(self._parameters):
            raise PatternError(
                f"reading example inputs: the function has the parameters {self._parameters}, "
                f"{sorted(self._scalars)} are scalars, and there are {len(examples)} examples; "
                "give an example tensor for every other parameter, in order"
            )
        self.tensors = {
            name: self._symbolic(name, example, dtypes.get(name))
            for name, example in zip(names, examples, strict=True)
        }

    def _symbolic(self, name: str, example: object, dtype: torch.dtype | None) -> torch.Tensor:
        if not isinstance(example, torch.Tensor):
            raise PatternError(
                f"reading example inputs: expected a tensor for `{name}`, found {example!r}; name "
                "parameters that are numbers in `scalar_workaround`"
            )
        sizes: list[int | torch.SymInt] = []
        for dimension, size in enumerate(example.shape):
            source = ConstantSource(f"{name}_{dimension}")
            symbol = self.shapes.create_symbol(
                int(size), source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
            )
            sizes.append(self.shapes.create_symintnode(symbol, hint=int(size), source=source))
        with self._mode:
            return torch.empty(sizes, dtype=dtype or example.dtype, device=example.device)

    def trace(self, function: Callable[..., object], *, composite: bool) -> TracedFunction:
        """Trace a function.

        Args:
            function: The function; has the tracer's parameters.
            composite: Whether composite operators (`linear`, `reshape`) stay whole, as
                in Dynamo graphs, or are decomposed, as in AOTAutograd graphs.

        Raises:
            PatternError: The function fails, returns something other than tensors, or behaves
                differently if a scalar has another value.
        """
        graph = self._graph(function, self._scalars, composite)
        floats = {k: v for k, v in self._scalars.items() if isinstance(v, float)}
        found: dict[tuple[Node, int], str] = {}
        for name, value in floats.items():
            other = self._graph(
                function, {**self._scalars, name: value * _OTHER_FLOAT + 1.0}, composite
            )
            for place in _differences(_name(function), name, graph, other):
                node, position = place
                if place in found or tree_leaves((node.args, node.kwargs))[position] != value:
                    raise PatternError(
                        f"tracing {_name(function)}: it computes a literal from the scalar "
                        f"{name!r}; only its value itself may be an argument of operators"
                    )
                found[place] = name
        output = next(iter(reversed(graph.nodes)))
        returned = tree_leaves(output.args[0])
        if not all(isinstance(node, Node) for node in returned) or len(set(returned)) != len(
            returned
        ):
            raise PatternError(
                f"tracing {_name(function)}: expected it to return distinct tensors, found "
                f"{returned}"
            )
        return TracedFunction(graph=graph, outputs=tuple(returned), scalars=found)

    def _graph(
        self, function: Callable[..., object], scalars: Mapping[str, object], composite: bool
    ) -> Graph:
        def on_tensors(*tensors: torch.Tensor) -> object:
            known = {**dict(zip(self.tensors, tensors, strict=True)), **scalars}
            return function(*(known[name] for name in self._parameters))

        try:
            with torch.no_grad(), self._mode:
                module = make_fx(on_tensors, pre_dispatch=composite)(*self.tensors.values())
        except Exception as error:
            raise PatternError(
                f"tracing {_name(function)} on example inputs: {type(error).__name__}: {error}"
            ) from error
        graph = module.graph
        placeholders = graph.find_nodes(op="placeholder")
        for node, name in zip(placeholders, self.tensors, strict=True):
            node.target = name
        # Writing operators stay: they are an error that must be seen.
        graph.eliminate_dead_code()
        return graph


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _differences(function: str, scalar: str, first: Graph, second: Graph) -> list[tuple[Node, int]]:
    """Return where the literals of two graphs of one function differ."""
    left, right = list(first.nodes), list(second.nodes)
    if [node.target for node in left] != [node.target for node in right]:
        raise PatternError(
            f"tracing {function}: it calls other operators when the scalar {scalar!r} has another "
            "value"
        )
    found: list[tuple[Node, int]] = []
    for node, partner in zip(left, right, strict=True):
        leaves, others = (tree_leaves((each.args, each.kwargs)) for each in (node, partner))
        for position, (value, other) in enumerate(zip(leaves, others, strict=True)):
            if not isinstance(value, Node) and value != other:
                found.append((node, position))
    return found
