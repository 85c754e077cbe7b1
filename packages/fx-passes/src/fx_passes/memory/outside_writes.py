"""Finds which of its inputs and module tensors a graph writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.memory.alias_analysis import GIVEN, AliasAnalysis
from fx_passes.memory.effect import EffectTable
from fx_passes.torch_internals import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Graph


@dataclass(frozen=True, kw_only=True)
class OutsideWrites:
    """The inputs and tensors of a module, by name, whose memory a graph writes.

    Attributes:
        surely: Written by a call of an operator whose writes are known.
        perhaps: Possibly written by another call.
    """

    surely: frozenset[str]
    perhaps: frozenset[str]

    @classmethod
    def of(cls, graph: Graph) -> OutsideWrites:
        """Find the writes of a graph; changes nothing."""
        effects = EffectTable()
        writers = [(node, effects.of(node)) for node in effects.possible_writers(graph)]
        if not any(effect.writes for _, effect in writers):
            return cls(surely=frozenset(), perhaps=frozenset())
        aliases = AliasAnalysis(graph, effects)
        given = [node for node in graph.nodes if node.op in GIVEN]

        def written(*, declared: bool) -> frozenset[str]:
            groups = {
                aliases.group(value)
                for node, effect in writers
                if declared is (isinstance(node.target, OpOverload) and not effect.barrier)
                for value in effect.writes
            }
            return frozenset(str(node.target) for node in given if aliases.group(node) in groups)

        return cls(surely=written(declared=True), perhaps=written(declared=False))

    def change(self, after: OutsideWrites, *, needless: Iterable[str] = ()) -> str | None:
        """Return the writes that were added or removed; None if there are none.

        A call that may have written anything is not evidence.

        Args:
            after: The writes of the graph now.
            needless: Writes that are no longer needed.
        """
        more = after.surely - self.surely - self.perhaps
        less = self.surely - after.surely - after.perhaps - set(needless)
        if more:
            return f"writes {_names(more)}, which nothing wrote before"
        return f"no longer writes {_names(less)}" if less else None


def _names(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
