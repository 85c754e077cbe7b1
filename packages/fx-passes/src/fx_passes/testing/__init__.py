"""For tests of rules and passes: captured graphs, and checks of what must hold after a rewrite."""

from fx_passes.testing.capture import GraphLevel, capture_graph
from fx_passes.testing.random_tensors import random_tensors
from fx_passes.testing.rewrite_checks import assert_left_alone, assert_rewritten
from fx_passes.testing.tolerance import assert_same_values, tolerance_of

__all__ = [
    "GraphLevel",
    "assert_left_alone",
    "assert_rewritten",
    "assert_same_values",
    "capture_graph",
    "random_tensors",
    "tolerance_of",
]
