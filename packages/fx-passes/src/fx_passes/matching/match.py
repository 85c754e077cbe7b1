"""The result of the matcher: a match, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.errors import RuleError
from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.memory.effect import EffectTable

if TYPE_CHECKING:
    from collections.abc import Mapping


class NoMatchError(RuleError):
    """Something that a rule needs is unknown; in a check, the reason why there is no match."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """A place in a graph that matches a pattern.

    Valid until the graph changes. Nodes belong to the graph and must not be changed by a check.

    Attributes:
        anchor: The node at which the search began.
        bound: The node or literal of each pattern parameter.
        outputs: The node that computes each output of the pattern; outputs that the graph
            does not compute are absent.
        needed: The outputs that something outside the match uses.
        labels: The node of each label of the pattern.
        nodes: All nodes that a rewrite removes, in the order of the graph.
        effects: Reports what nodes write and what memory they share; see `fx_passes.memory`.
    """

    anchor: Node
    bound: Mapping[str, object]
    outputs: Mapping[str, Node]
    needed: frozenset[str]
    labels: Mapping[str, Node]
    nodes: tuple[Node, ...]
    effects: EffectTable = field(default_factory=EffectTable)
    _tensors: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def inputs(self) -> frozenset[Node]:
        """The nodes of parameters, alone or in a list."""
        found: set[Node] = set()
        for bound in self.bound.values():
            if type(bound) is Node:
                found.add(bound)
            elif isinstance(bound, (list, tuple, dict, slice)):
                found.update(nodes_in(bound))
        return frozenset(found)

    def value(self, name: str) -> object:
        """Return the value of a parameter, output or label.

        Args:
            name: Name of a parameter, output or label.

        Returns:
            The literal, or the fake value of the node: a tensor that has shape, dtype and device
            but no memory, a symbolic number, or a list of these. None if the node has no fake
            value or the graph does not compute it.
        """
        bound = self.bound
        if name in bound:
            return value_of(bound[name])
        return value_of(self.outputs.get(name, self.labels.get(name)))

    def tensor(self, name: str) -> torch.Tensor:
        """Return the fake tensor of a parameter, output or label.

        Raises:
            NoMatchError: There is none. A check need not catch it: the rule then does not
                apply.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            value = self.value(name)
            if not isinstance(value, torch.Tensor):
                raise NoMatchError(f"no tensor metadata for `{name}`")
            tensor = self._tensors[name] = value
        return tensor

    def results(self, name: str) -> tuple[torch.Tensor, ...]:
        """Return the fake tensors of an output or label that has several.

        Raises:
            NoMatchError: As `tensor`.
        """
        value = self.value(name)
        if isinstance(value, (tuple, list)):
            return tuple(value)
        raise NoMatchError(f"no tensor metadata for `{name}`")

    def node(self, name: str) -> Node:
        """Return the node of a parameter.

        Raises:
            RuleError: The parameter is a literal.
        """
        node = self.bound[name]
        if isinstance(node, Node):
            return node
        raise RuleError(f"`{name}` is {node!r}, expected a node")

    def arguments(self, *names: str) -> list[object]:
        """Return the nodes or literals of some parameters, for a call that takes them in a row."""
        return [self.bound[name] for name in names]


@dataclass(frozen=True, eq=False)
class NoMatch:
    """Why a rule does not apply.

    Attributes:
        reason: One sentence without a full stop: what was expected and what was found.
        nodes: The nodes that the reason refers to.
    """

    reason: str
    nodes: tuple[Node, ...] = ()
