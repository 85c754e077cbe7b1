"""For those who test passes: graphs as engines produce them, and what must hold after a rewrite."""

from fx_passes.testing.capture import GraphLevel, capture_graph
from fx_passes.testing.decoder import (
    AttentionHeads,
    qkv_function,
    qkv_inputs,
    random_tensors,
)
from fx_passes.testing.random_graphs import RANDOM_GRAPH_SHAPE, random_graph, random_rule
from fx_passes.testing.ranks import run_ranks
from fx_passes.testing.rewrite_checks import assert_left_alone, assert_rewritten
from fx_passes.testing.tolerance import assert_same_values, tolerance_of

__all__ = [
    "RANDOM_GRAPH_SHAPE",
    "AttentionHeads",
    "GraphLevel",
    "assert_left_alone",
    "assert_rewritten",
    "assert_same_values",
    "capture_graph",
    "qkv_function",
    "qkv_inputs",
    "random_graph",
    "random_rule",
    "random_tensors",
    "run_ranks",
    "tolerance_of",
]
