"""The runtime's fake device fits the seam: records, plans and a lane work on it as they are."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attn_update import (
    FusedInferAttention,
    OperatorFamily,
    Recorder,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, *, SymInt[]? actual_seq_lengths_kv=None, "
    "str input_layout='BSH'"
)


def attention_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    actual_seq_lengths_kv: list[int],
    input_layout: str = "BSH",
    workspace: torch.Tensor | None = None,
    out: list[torch.Tensor],
) -> None:
    for row, length in enumerate(actual_seq_lengths_kv):
        seen = torch.full((), length) > torch.arange(value.shape[1])
        torch.sum(value[row] * seen.unsqueeze(1), 0, keepdim=True, out=out[0][row])


@pytest.fixture
def kind() -> Iterator[FusedInferAttention]:
    namespace = f"attn_update_test_{uuid.uuid4().hex}"
    library: Any = torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]
    library.define(f"attention.out({ARGUMENTS}, Tensor? workspace=None, Tensor[] out) -> ()")
    library.define(f"max_workspace({ARGUMENTS}) -> Tensor")
    library.define("infer_output(Tensor query, Tensor value) -> (Tensor, Tensor)")
    library.impl("attention.out", attention_out, "CPU")
    library.impl("max_workspace", lambda *args, **given: torch.empty(64), "CPU")
    library.impl("infer_output", lambda q, v: (torch.empty_like(q), torch.empty(1)), "CPU")
    family = OperatorFamily(
        functional=f"{namespace}::attention",
        workspace_query=f"{namespace}::max_workspace",
        output_query=f"{namespace}::infer_output",
        query_lengths="actual_seq_lengths",
        key_lengths="actual_seq_lengths_kv",
        heads="num_heads",
        softmax_lse="softmax_lse_flag",
    )
    yield FusedInferAttention(family=family)
    library._destroy()


def test_lane_on_the_fake_device_gives_every_step_its_own_lengths(
    kind: FusedInferAttention,
) -> None:
    device = FakeDevice()
    recorder = Recorder(device, {"attention": kind})
    query = torch.zeros(2, 1, 3)
    values = [torch.rand(2, 9, 3, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    graph = device.create_graph()
    with (
        recorder.recording("decode"),
        device.capture(graph, pool=device.create_memory_pool()),
    ):
        outputs = [
            recorder.attention(
                f"layer.{index}",
                "attention",
                {"query": query, "key": value, "value": value, "actual_seq_lengths_kv": [1, 1]},
            )[0]
            for index, value in enumerate(values)
        ]
    plan, lane = UpdatePlan.compile(recorder, "decode"), UpdateLane(device)

    for lengths in [[9, 1], [3, 0], [3, 0], [5, 7]]:
        before = device.num_synchronizations
        group = {"actual_seq_lengths_kv": lengths}
        lane.run(plan, StepParameters(key="decode", groups={"default": group}), graph.replay)
        assert device.num_synchronizations == before

        device.synchronize()
        for value, out in zip(values, outputs, strict=True):
            expected = [value[row, :n].sum(0, keepdim=True) for row, n in enumerate(lengths)]
            torch.testing.assert_close(out, torch.stack(expected))
