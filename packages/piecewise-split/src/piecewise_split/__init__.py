"""Split an FX graph at named operators and stitch the pieces into one flat function."""

from piecewise_split.__about__ import __version__
from piecewise_split.building.split import Piece, SplitGraph, split
from piecewise_split.building.stitch import run_uncompiled, stitch
from piecewise_split.errors import (
    PiecewiseSplitError,
    PlanError,
    SplittingOpError,
    UnsupportedGraphError,
)
from piecewise_split.planning.planner import plan_split
from piecewise_split.planning.split_plan import PlannedPiece, SplitPlan

__all__ = [
    "Piece",
    "PiecewiseSplitError",
    "PlanError",
    "PlannedPiece",
    "SplitGraph",
    "SplitPlan",
    "SplittingOpError",
    "UnsupportedGraphError",
    "__version__",
    "plan_split",
    "run_uncompiled",
    "split",
    "stitch",
]
