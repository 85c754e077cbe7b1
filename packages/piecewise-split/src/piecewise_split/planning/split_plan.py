"""The plan of a split: plain data that can be printed, stored and compared before it is built."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Literal

from piecewise_split.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from piecewise_split.planning.analysed_graph import AnalysedGraph

CutKind = Literal["graph start", "splitting op", "after splitting op"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutReason:
    """Why a piece begins where it begins.

    Attributes:
        kind: The kind of cut.
        operator: Name of the splitting op at the cut, as requested; None at the start of
            the graph.
        node: Name of the node that calls it; None at the start of the graph.
    """

    kind: CutKind
    operator: str | None = None
    node: str | None = None

    def __str__(self) -> str:
        return self.kind if self.operator is None else f"{self.kind} {self.operator} ({self.node})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedPiece:
    """One piece of a plan. All names are names of nodes in the planned graph.

    Attributes:
        index: Position in the order of execution, from 0.
        name: ``piece_<index>``.
        is_splitting: Whether the piece consists of splitting ops and the ``getitem`` nodes that
            unpack their results.
        nodes: Nodes that run in the piece, in order.
        merged: Those of ``nodes`` that came from a later piece that launched nothing.
        inputs: Values from outside, in the order of the piece's parameters.
        side_inputs: Those of ``inputs`` that were declared and that no node of the piece uses.
        outputs: Values passed on, in the order in which the piece returns them.
        live: Values of earlier pieces that this piece, a later one or the graph's output uses: they
            occupy memory while the piece runs, in addition to the parameters.
        live_bytes: Bytes of the tensors among ``live``, by the metadata of the graph; a symbolic
            size counts as in the example inputs. Views count as if they had memory of their own.
            None without metadata or an example size, and in plans stored by 0.1.0.
        source: Line of the model that the first node with a stack trace came from, as
            ``folder/file.py:12``; None if no node has one.
        modules: Paths of the modules of the first and the last node, as ``layers.0.mlp to
            layers.1.qkv_proj``; None if no node belongs to a module.
        cut_reason: Why the piece begins here.
        structural_key: Digest of the structure; equal keys mean equal code.
        isomorphic_to: Index of the first piece with the same structure; its own if it is the first.
    """

    index: int
    name: str
    is_splitting: bool
    nodes: tuple[str, ...]
    merged: tuple[str, ...]
    inputs: tuple[str, ...]
    side_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    live: tuple[str, ...] = ()
    live_bytes: int | None = None
    source: str | None = None
    modules: str | None = None
    cut_reason: CutReason
    structural_key: str
    isomorphic_to: int

    @property
    def kind(self) -> str:
        """``splitting`` or ``capturable``."""
        return "splitting" if self.is_splitting else "capturable"

    @property
    def label(self) -> str:
        """Name of the piece in messages: its name, and its modules or else its source."""
        place = self.modules or self.source
        return self.name if place is None else f"{self.name} ({place})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """How one graph is split.

    ``str(plan)`` returns a readable table; :meth:`to_json` and :meth:`from_json` store the table's
    data, without the graph.

    Attributes:
        pieces: The pieces in the order of execution, which is the order of the graph.
        splitting_ops: Requested names, canonical (``ns::op`` or ``ns::op.overload``).
        absent_ops: Those of them that the graph does not call.
        parameters: Names of the graph's parameters, in order.
        dissolved: Nodes that run in no piece because sizes were decomposed.
        analysed: The analysed graph, from which :func:`split` builds; None for a plan
            read from JSON. Ignored in comparisons.
    """

    pieces: tuple[PlannedPiece, ...]
    splitting_ops: tuple[str, ...]
    absent_ops: tuple[str, ...]
    parameters: tuple[str, ...]
    dissolved: tuple[str, ...]
    analysed: AnalysedGraph | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def num_distinct(self) -> int:
        """Number of distinct structures, which is the number of graphs that are built."""
        return _num_distinct(self.pieces)

    def __str__(self) -> str:
        header = ("piece", "kind", "nodes", "inputs", "outputs", "live", "cut", "isomorphic to")
        rows = [header, *map(_row, self.pieces)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = [
            "  ".join(
                cell.rjust(width) if column in {0, 2} else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        splitting = [piece for piece in self.pieces if piece.is_splitting]
        capturable = [piece for piece in self.pieces if not piece.is_splitting]
        summary = (
            f"{len(self.pieces)} pieces: {len(capturable)} capturable "
            f"({_num_distinct(capturable)} distinct), {len(splitting)} splitting "
            f"({_num_distinct(splitting)} distinct); "
            f"split at {', '.join(self.splitting_ops) or 'nothing'}"
        )
        if self.absent_ops:
            summary += f"; not in the graph: {', '.join(self.absent_ops)}"
        return "\n".join([summary, *lines])

    def to_json(self) -> str:
        """Write the plan as JSON text."""
        data = dataclasses.asdict(self.without_graph())
        del data["analysed"]
        return json.dumps(data, indent=1)

    def without_graph(self) -> SplitPlan:
        """Return the plan as data only; it keeps no graph alive and cannot be split."""
        return dataclasses.replace(self, analysed=None)

    @staticmethod
    def from_json(text: str) -> SplitPlan:
        """Read a plan written by :meth:`to_json`, to show and compare it.

        Raises:
            PlanError: The text is not such a plan.
        """
        try:
            return _read_plan(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise PlanError(
                f"Reading a split plan from JSON: {error!r}. Expected the text of "
                f"SplitPlan.to_json of the same version."
            ) from error


def _num_distinct(pieces: Iterable[PlannedPiece]) -> int:
    return sum(piece.isomorphic_to == piece.index for piece in pieces)


def _read_plan(data: dict[str, list[dict[str, object]]]) -> SplitPlan:
    pieces = []
    for entry in data.pop("pieces"):
        fields = {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}
        reason = entry["cut_reason"]
        if not isinstance(reason, dict):
            raise TypeError(f"cut_reason is {reason!r}")
        fields["cut_reason"] = CutReason(**reason)
        pieces.append(PlannedPiece(**fields))  # type: ignore[arg-type]
    names = {name: tuple(values) for name, values in data.items()}
    return SplitPlan(pieces=tuple(pieces), **names)  # type: ignore[arg-type]


def _row(piece: PlannedPiece) -> tuple[str, ...]:
    cut = str(piece.cut_reason)
    if piece.merged:
        cut += f"; merged {_shorten(piece.merged, 24)}"
    return (
        str(piece.index),
        piece.kind,
        str(len(piece.nodes)),
        _shorten(piece.inputs),
        _shorten(piece.outputs),
        _live(piece),
        cut,
        "-" if piece.isomorphic_to == piece.index else str(piece.isomorphic_to),
    )


def _live(piece: PlannedPiece) -> str:
    size = "? B" if piece.live_bytes is None else f"{piece.live_bytes:,} B"
    return f"{len(piece.live)}, {size}" if piece.live else "-"


def _shorten(names: tuple[str, ...], width: int = 40) -> str:
    """Join names; if the text would be too wide, replace the last ones by their number."""
    text = ", ".join(names)
    if len(text) <= width:
        return text or "-"
    shown = 1
    while shown < len(names) and len(", ".join(names[: shown + 1])) <= width - 6:
        shown += 1
    return ", ".join(names[:shown]) + f", +{len(names) - shown}" * (shown < len(names))
