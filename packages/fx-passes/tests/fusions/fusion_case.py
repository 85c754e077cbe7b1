"""Test cases of fusions: a graph as an engine emits it, and near misses that must not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fx_passes.graph_pass import RulePass
from fx_passes.npu_pipeline import default_npu_pipeline

if TYPE_CHECKING:
    from fx_passes.pipeline import Pipeline
    from fx_passes.testing.capture import GraphLevel

__all__ = ["FusionCase", "FusionInputs", "NearMissCase"]

FusionInputs = Callable[[torch.dtype, str, int], "list[Tensor]"]
"""Makes the inputs of a function: of a dtype, on a device, for a number of tokens."""

_BOTH: tuple[GraphLevel, ...] = ("dynamo", "aten")
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, kw_only=True)
class NearMissCase:
    """A function that resembles a rule's pattern but must not be rewritten.

    Attributes:
        name: The difference, in a few words; unique in its case.
        function: A function to capture; the function of the case if None.
        inputs: Makes its inputs; the inputs of the case if None.
        reason: A part of the no-match reason; empty for rules that do not report near misses, and
            for functions that are not near.
        dtype: Dtype of the inputs.
    """

    name: str
    function: Callable[..., object] | None = None
    inputs: FusionInputs | None = None
    reason: str = ""
    dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True, kw_only=True)
class FusionCase:
    """A function as engines write it, and the expected rewrites of its graph.

    Attributes:
        name: Name in test ids, unique among the cases of a rule.
        rule: The rule that must match.
        function: The function.
        inputs: Makes its inputs.
        matches: Number of matches of each rule; by default one match of `rule`.
        in_aten: Number of matches of further rules on a graph of only ATen operators.
        dtypes: Input dtypes for which the rule must match.
        levels: Graph levels on which the rule must match.
        tokens: Dimension that counts tokens, by position of the input.
        roundings: See `assert_same_values`; roundings in the dtype of the inputs.
        missing_kernel: A kernel that neither the simulated device nor the real one of its kind
            has; running the fused graph must then fail and name it.
        near_misses: Functions that must not be rewritten.
        pipeline: Makes the pipeline that contains the rule.
    """

    name: str
    rule: str
    function: Callable[..., object]
    inputs: FusionInputs
    matches: Mapping[str, int] = field(default_factory=dict)
    in_aten: Mapping[str, int] = field(default_factory=dict)
    dtypes: tuple[torch.dtype, ...] = _HALVES
    levels: tuple[GraphLevel, ...] = _BOTH
    tokens: Mapping[int, int] = field(default_factory=lambda: {0: 0})
    roundings: int = 0
    missing_kernel: str = ""
    near_misses: tuple[NearMissCase, ...] = ()
    pipeline: Callable[[], Pipeline] = default_npu_pipeline

    def whatever_it_costs(self) -> Pipeline:
        """Return the pipeline, with rules that fuse though a cast of a scale costs as much."""
        return _whatever_it_costs(self.pipeline)

    def expected(self, level: GraphLevel = "dynamo") -> dict[str, int]:
        """Return how often each rule must match on a graph of some level."""
        matches = dict(self.matches) or {self.rule: 1}
        return {**matches, **self.in_aten} if level == "aten" else matches


@cache
def _whatever_it_costs(make: Callable[[], Pipeline]) -> Pipeline:
    # Once in a process: each pipeline traces the patterns of its rules, longer than it runs here.
    pipeline = make()
    passes = (
        replace(each, rules=tuple(replace(rule, accepts_cost=True) for rule in each.rules))
        if isinstance(each, RulePass)
        else each
        for each in pipeline.passes
    )
    return replace(pipeline, passes=tuple(passes))
