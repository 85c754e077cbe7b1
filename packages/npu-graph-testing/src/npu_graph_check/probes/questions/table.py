"""The probes of open questions, which have an answer and not a verdict."""

from __future__ import annotations

from npu_graph_check.probes.probe_table import probes_of

QUESTIONS = probes_of(
    "questions",
    """
queue-depth        graph_costs:queue_depth
    How many tasks does a stream hold at most?
graph-costs        graph_costs:graph_costs              capture-14
    How many streams and bytes does a captured graph take, by its kernels?
kernels-by-length  attention_calls:kernels_by_length
    Do the kernels of a call of fused attention change with the lengths?
unmasked-decode    attention_calls:unmasked_decode      fia-6
    Is fused attention in decode equal and faster without a mask and with sparse mode 0?
repeated-executor  repeated_executor:repeated_executor  call-11
    Does an executor of fused attention run again, also with other tensor addresses?
""",
    limit_s=120,
)
