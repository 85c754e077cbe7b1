"""External events in both forms."""

from __future__ import annotations

from typing import Any

import pytest

PROTOCOL = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
value = torch.ones(1).npu()
product = torch.zeros(1).npu()
event, graph, stream = npu.ExternalEvent(), npu.NPUGraph(), npu.Stream()
with npu.graph(graph):
    main = npu.current_stream()
    event.wait(main)
    event.reset(main)
    npu.graph_task_group_begin(main)
    torch.mul(value, 1.0, out=product)
    handle = npu.graph_task_group_end(main)
results = []
for factor in (2.0, 3.0, 4.0):
    graph.replay()
    npu.current_stream().synchronize() if {replay_ends_alone} else None
    with npu.stream(stream):
        npu.graph_task_update_begin(stream, handle)
        torch.mul(value, factor, out=product)
        npu.graph_task_update_end(stream)
        event.record(stream)
    npu.synchronize()
    results.append(product.cpu().item())
print(results)
"""


def test_external_event_of_values_makes_the_graph_wait_for_its_update(run_forked: Any) -> None:
    done = run_forked(PROTOCOL.format(replay_ends_alone=False))
    assert "[2.0, 3.0, 4.0]" in done.output, done.errors


def test_external_event_of_the_older_form_is_one_update_late(run_forked: Any) -> None:
    """A wait before the first record captures nothing in this form, as in torch_npu itself."""
    done = run_forked(
        PROTOCOL.format(replay_ends_alone=True), environment={"CANN_SIM_EXTERNAL_EVENTS": "event"}
    )
    assert "[1.0, 2.0, 3.0]" in done.output, done.errors


@pytest.mark.parametrize("form", ["value", "event"])
def test_external_event_recorded_outside_ends_a_wait(run_forked: Any, form: str) -> None:
    done = run_forked(
        """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
event, first, second = npu.ExternalEvent(), npu.Stream(), npu.Stream()
event.record(second)
event.wait(first)
first.synchronize()
print("ended")
""",
        environment={"CANN_SIM_EXTERNAL_EVENTS": form},
    )
    assert "ended" in done.output, done.errors


def test_external_event_form_that_is_unknown_is_refused(run_forked: Any) -> None:
    done = run_forked(
        "import cann_sim; cann_sim.activate()", environment={"CANN_SIM_EXTERNAL_EVENTS": "both"}
    )
    assert "CANN_SIM_EXTERNAL_EVENTS: expected value or event, found 'both'" in done.errors
