"""Creates the nodes of a rewrite, with metadata, at the place that was found for them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from fx_passes.errors import RuleError
from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.rewriting.recorded_values import fake_result
from fx_passes.torch_internals import schema_of, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, KeysView, Mapping

    from torch.fx import Graph, Node

    from fx_passes.matching.match import Match
    from fx_passes.memory import AliasAnalysis
    from fx_passes.normal_form.operator_signature import SignatureTable
    from fx_passes.torch_internals import OpOverload


_NOT_CARRIED = frozenset({"val", "example_value", "tensor_meta"})


class GraphBuilder:
    """Handed to a rewrite; every node it creates stands at a legal place, in the order of creation.

    Stack trace, `nn_module_stack` and all else in the metadata come from the last removed node.

    Attributes:
        created: The nodes created so far.
        checked: Nodes from outside of the match that `unchanged` said may be used.
    """

    def __init__(
        self,
        graph: Graph,
        match: Match,
        before: Node,
        signatures: SignatureTable,
        aliases: AliasAnalysis,
    ) -> None:
        self.created: list[Node] = []
        self.checked: set[Node] = set()
        self._taken: dict[Node, tuple[Node, int]] = {}
        self._aliases = aliases
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
                f"building a call of {found}: {args} {kwargs} do not fit the schema "
                f"{schema_of(found)}"
            )
        normal_args, normal_kwargs = signature.minimal(bound)
        value = _inferred(found, normal_args, normal_kwargs) if val is None else val
        node = self._graph.call_function(found, normal_args, normal_kwargs)  # type: ignore[arg-type]
        return self._finish(node, value)

    def element(self, source: Node, position: int) -> Node:
        """Create a `getitem` of one result of a call that has several."""
        node = self._graph.call_function(operator.getitem, (source, position))
        return self._finish(node, _value_of_element(source, position))

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
        for name, position in positions.items():
            if name in self._needed:
                node = taken[name] = self._outputs[name]
                self._taken[node] = source, position
        return taken

    def unchanged(self, node: Node, since: Node) -> bool:
        """Return whether a node from outside of the match may stand for what another read of it.

        A rewrite may use what the pattern's parameters stand for. What they were computed from may
        have been written since; this says that it was not.

        Args:
            node: The node that the rewrite would use, such as the scale after a reciprocal.
            since: The node that read it, such as the reciprocal.

        Returns:
            Whether nothing writes the memory of either up to where the new nodes stand. If so,
            the rewrite may use `node`.
        """
        before = self._before
        if not node < before or self._aliases.writer_between(since, before, (node, since)):
            return False
        self.checked.add(node)
        return True

    @property
    def taken(self) -> KeysView[Node]:
        """Nodes of outputs that become elements of new calls."""
        return self._taken.keys()

    def value_when_taken(self, node: Node) -> object:
        """Return the fake value of a node as a rewrite leaves it, or None where it is not known."""
        taken = self._taken.get(node)
        return value_of(node) if taken is None else _value_of_element(*taken)

    def commit(self) -> None:
        """Let the outputs that `elements` took become elements of the new calls.

        Their fake values remain to be recorded.
        """
        for node, (source, position) in self._taken.items():
            if node.target is operator.getitem and node.args[1] == position:
                node.replace_input_with(node.args[0], source)  # type: ignore[arg-type]
            else:
                node.target = operator.getitem
                node.args = (source, position)
                if node.kwargs:
                    node.kwargs = {}
            if node is not self._before:
                source.append(node)

    def discard(self) -> None:
        """Take back the created nodes; the graph is as it was before the rewrite."""
        for node in reversed(self.created):
            self._graph.erase_node(node)

    def _finish(self, node: Node, value: object) -> Node:
        meta = node.meta
        meta.update(self._meta)
        if value is not None:
            meta["val"] = value
        self.created.append(node)
        return node


def _value_of_element(source: Node, position: int) -> object:
    """Return the fake value of one result of a call, or None where it is not known."""
    values = source.meta.get("val")
    if not isinstance(values, (tuple, list)) or position >= len(values):
        return None
    value: object = values[position]
    return value


def _inferred(target: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
    """Run an operator on the fake values of its arguments; None where none of them is known."""
    values = [value_of(argument) for argument in args]
    keywords = {name: value_of(argument) for name, argument in kwargs.items()}
    known = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((values, keywords)))
    if not known and next(nodes_in((args, kwargs)), None) is not None:
        return None
    return fake_result(target, values, keywords)
