"""Describes values of a pattern or a graph for reports."""

from __future__ import annotations

import operator

from torch.fx import Node

from fx_passes.matching.pattern import PatternCall, PatternElement, PatternParameter


def describe(item: object) -> str:
    """Return the description of a pattern value, or a graph's node or literal, for reports."""
    if isinstance(item, Node):
        if item.target is operator.getitem:
            source, position, *_ = item.args
            return f"`{item.name}` (result {position} of `{source}`)"
        return f"`{item.name}` ({item.target})" if item.op == "call_function" else f"`{item.name}`"
    if isinstance(item, PatternCall):
        return f"a call of {item.operators[0]}"
    if isinstance(item, PatternElement):
        return f"result {item.position} of an operator"
    if isinstance(item, PatternParameter):
        kinds = {"tensor": "a tensor", "optional_tensor": "a tensor or None", "tensors": "tensors"}
        return f"{kinds.get(item.kind, 'a literal')} for `{item.name}`"
    return repr(item)
