"""Creates the nodes of a rewrite, with metadata, at the place that was found for them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.utils import _pytree as pytree

from fx_passes.errors import RuleError
from fx_passes.graph_argument import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch._ops import OpOverload
    from torch.fx import Graph

    from fx_passes.match import Match
    from fx_passes.operator_signature import SignatureTable

__all__ = ["GraphBuilder"]

_NOT_CARRIED = frozenset({"val", "example_value", "tensor_meta"})


class GraphBuilder:
    """Handed to a rewrite; every node it creates stands at a legal place, in the order of creation.

    Stack trace, `nn_module_stack` and all else in the metadata come from the last removed node.

    Attributes:
        created: The nodes created so far.
    """

    def __init__(
        self, graph: Graph, match: Match, before: Node, signatures: SignatureTable
    ) -> None:
        self.created: list[Node] = []
        self._graph = graph
        self._before = before
        self._needed = match.needed
        self._outputs = match.outputs
        self._signatures = signatures
        self._meta = {
            key: value for key, value in match.nodes[-1].meta.items() if key not in _NOT_CARRIED
        }

    def call(
        self, target: OpOverload | str, *args: object, val: object = None, **kwargs: object
    ) -> Node:
        """Create a call of an operator.

        Args:
            target: The operator, or its name (`npu::npu_add_rms_norm`).
            args: Positional arguments: nodes, literals, or lists of these.
            val: The fake value of the result (a tensor, or a tuple of tensors). Give it where it is
                known, such as that of a replaced output: computing it costs about a millisecond.
                Left out, the operator runs on the fake values of its arguments.
            kwargs: Keyword arguments.

        Returns:
            The new node, arguments in normal form.

        Raises:
            RuleError: The operator does not exist in this process, or the arguments do not fit it.
        """
        found = self._signatures.find(target) if isinstance(target, str) else target
        if found is None:
            raise RuleError(
                f"building a call of {target}: this process has no such operator; list it in the "
                "rule's `operators`, so that the rule waits until it is there"
            )
        signature = self._signatures.of(found)
        bound = signature.bind(args, kwargs)
        if bound is None:
            raise RuleError(
                f"building a call of {found}: {args} {kwargs} do not fit the schema {found._schema}"  # noqa: SLF001 - the only road to a schema
            )
        normal_args, normal_kwargs = signature.minimal(bound)
        node = self._graph.call_function(found, normal_args, normal_kwargs)  # type: ignore[arg-type]
        return self._finish(node, self._infer(found, bound) if val is None else val)

    def element(self, source: Node, position: int) -> Node:
        """Create a `getitem` of one result of a call that has several."""
        value = source.meta.get("val")
        element = None
        if isinstance(value, (tuple, list)) and position < len(value):
            element = value[position]
        node = self._graph.call_function(operator.getitem, (source, position))
        return self._finish(node, element)

    def number(self, function: Callable[..., object], *args: object, val: object) -> Node:
        """Create a call that computes a symbolic number from others.

        Args:
            function: A function of Python's `operator` or `math`, or `aten.sym_size.int`.
            args: Nodes and literals.
            val: The symbolic number it gives.
        """
        return self._finish(self._graph.call_function(function, args), val)  # type: ignore[arg-type]

    def elements(self, source: Node, positions: Mapping[str, int]) -> dict[str, Node]:
        """Take a result of a call for each output that something outside of the match uses.

        The nodes of the outputs become the `getitem`s: they keep their name, their users and their
        metadata but for the fake value, which is also the cheapest way.

        Args:
            source: A call that has several results.
            positions: For each output of the pattern, which result replaces it.

        Returns:
            What a rewrite returns: the replacement of each needed output.
        """
        taken: dict[str, Node] = {}
        values = source.meta.get("val")
        known = values if isinstance(values, (tuple, list)) else ()
        for name, position in positions.items():
            if name in self._needed:
                node = self._outputs[name]
                if node.target is operator.getitem and node.args[1] == position:
                    node.replace_input_with(node.args[0], source)  # type: ignore[arg-type]
                else:
                    node.target = operator.getitem
                    node.args = (source, position)
                    if node.kwargs:
                        node.kwargs = {}
                if position < len(known):
                    node.meta["val"] = known[position]
                if node is not self._before:
                    self._before.prepend(node)
                taken[name] = node
        return taken

    def _finish(self, node: Node, value: object) -> Node:
        meta = node.meta
        meta.update(self._meta)
        if value is not None:
            meta["val"] = value
        self.created.append(node)
        return node

    def _infer(self, target: OpOverload, bound: tuple[object, ...]) -> object:
        signature = self._signatures.of(target)
        args, kwargs = signature.minimal(bound)
        values = [value_of(argument) for argument in args]
        keywords = {name: value_of(argument) for name, argument in kwargs.items()}
        tensors = [
            leaf
            for leaf in pytree.tree_leaves((values, keywords))
            if isinstance(leaf, torch.Tensor)
        ]
        nodes = sum(isinstance(leaf, Node) for leaf in pytree.tree_leaves((args, kwargs)))
        if len(tensors) < nodes and not tensors:
            return None
        mode = next((each.fake_mode for each in tensors if isinstance(each, FakeTensor)), None)
        if mode is None:
            return target(*values, **keywords)
        with mode:
            return target(*values, **keywords)
