"""Split an FX graph at named operators and stitch the pieces into one flat function."""

from piecewise_split.__about__ import __version__
from piecewise_split.building.debugged_pieces import run_debugged
from piecewise_split.building.size_ranges import SizeRange, compile_by_size
from piecewise_split.building.split import Piece, PieceCode, SplitGraph, split
from piecewise_split.building.stitch import StitchedFunction, run_uncompiled, stitch
from piecewise_split.errors import (
    CompiledPieceError,
    FailedNodeError,
    PiecewiseSplitError,
    PlanMismatchError,
    SideInputError,
    SizeMetadataError,
    SizeRangeError,
    SplittingOpAbsentError,
    SplittingOpNameError,
    UnsupportedGraphError,
)
from piecewise_split.planning.planner import plan_split
from piecewise_split.planning.split_plan import CutReason, PlannedPiece, SplitPlan
from piecewise_split.planning.split_points import (
    SplitPoints,
    SplitPredicate,
    SplittingOp,
    find_split_points,
)

__all__ = [
    "CompiledPieceError",
    "CutReason",
    "FailedNodeError",
    "Piece",
    "PieceCode",
    "PiecewiseSplitError",
    "PlanMismatchError",
    "PlannedPiece",
    "SideInputError",
    "SizeMetadataError",
    "SizeRange",
    "SizeRangeError",
    "SplitGraph",
    "SplitPlan",
    "SplitPoints",
    "SplitPredicate",
    "SplittingOp",
    "SplittingOpAbsentError",
    "SplittingOpNameError",
    "StitchedFunction",
    "UnsupportedGraphError",
    "__version__",
    "compile_by_size",
    "find_split_points",
    "plan_split",
    "run_debugged",
    "run_uncompiled",
    "split",
    "stitch",
]
