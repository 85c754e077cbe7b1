"""What the matcher found: a match, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.memory.effect import EffectTable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Match", "NoMatch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """A place in a graph where a pattern fits.

    Valid until the graph changes. Nodes belong to the graph and must not be changed by a check.

    Attributes:
        anchor: The node at which the search began.
        bound: For each pattern parameter the node or literal it stands for.
        outputs: For each output of the pattern the node that computes it; an output that the graph
            does not compute is absent.
        needed: The outputs that something outside of the match uses.
        labels: For each label of the pattern the node it stands for.
        nodes: All nodes that a rewrite removes, in the order of the graph.
        effects: Tells what nodes write and what memory they share; see `fx_passes.memory`.
    """

    anchor: Node
    bound: Mapping[str, object]
    outputs: Mapping[str, Node]
    needed: frozenset[str]
    labels: Mapping[str, Node]
    nodes: tuple[Node, ...]
    effects: EffectTable = field(default_factory=EffectTable)

    @cached_property
    def inputs(self) -> frozenset[Node]:
        """The nodes that parameters stand for, alone or in a list."""
        found: set[Node] = set()
        for bound in self.bound.values():
            if type(bound) is Node:
                found.add(bound)
            elif isinstance(bound, (list, tuple, dict, slice)):
                found.update(nodes_in(bound))
        return frozenset(found)

    def value(self, name: str) -> object:
        """Return what a parameter, output or label stands for.

        Args:
            name: Name of a parameter, output or label.

        Returns:
            The literal, or the fake value of the node: a tensor that has shape, dtype and device
            but no memory, a symbolic number, or a list of these. None where the node has no fake
            value or the graph does not compute it.
        """
        if name in self.bound:
            return value_of(self.bound[name])
        node = self.outputs.get(name, self.labels.get(name))
        return None if node is None else value_of(node)

    def tensors(self, *names: str) -> tuple[torch.Tensor, ...] | NoMatch:
        """Return the fake tensors that some names stand for, or why one is not known."""
        found: list[torch.Tensor] = []
        bound = self.bound
        for name in names:
            node = bound.get(name)
            value = node.meta.get("val") if isinstance(node, Node) else None
            if value is None:
                value = self.value(name)
            if not isinstance(value, torch.Tensor):
                return NoMatch(f"no tensor metadata for `{name}`")
            found.append(value)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class NoMatch:
    """Why a rule does not apply.

    Attributes:
        reason: One sentence without a full stop: what was expected against what was found.
        nodes: The nodes the reason speaks of.
    """

    reason: str
    nodes: tuple[Node, ...] = ()
