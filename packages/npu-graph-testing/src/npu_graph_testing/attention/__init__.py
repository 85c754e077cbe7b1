"""Attention for tests of updates: models that capture it, and operators for the fake device."""

from npu_graph_testing.attention.attention_operators import AttentionOperators
from npu_graph_testing.attention.captured_model import CapturedModel, assert_layers_equal
from npu_graph_testing.attention.paged_model import PagedModel, draw_lengths

__all__ = [
    "AttentionOperators",
    "CapturedModel",
    "PagedModel",
    "assert_layers_equal",
    "draw_lengths",
]
