"""Every kind in every way that engines call it; each is captured, updated and compared."""

from npu_graph_testing.attention.cases.attention_case import (
    AttentionCase,
    CaseModel,
    DrawnStep,
    Step,
)
from npu_graph_testing.attention.cases.case_table import all_cases, all_kinds, find_case
from npu_graph_testing.attention.cases.context_parallel_cases import lengths_of_process

__all__ = [
    "AttentionCase",
    "CaseModel",
    "DrawnStep",
    "Step",
    "all_cases",
    "all_kinds",
    "find_case",
    "lengths_of_process",
]
