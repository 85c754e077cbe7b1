from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_compile import InputSpec
from npu_compile.runners.input_buffers import RING_DEPTH, InputBuffers
from npu_compile.runners.step_size import StepSize

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice

SPECS = {
    "ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.int32, trailing_shape=(3,), pad_value=7),
}


def _size(rows: int) -> StepSize:
    return StepSize(tokens=rows, sequences=rows)


def _values(rows: int, fill: int, *, width: int = 3) -> dict[str, torch.Tensor]:
    return {
        "ids": torch.full((rows,), fill),
        "table": torch.full((rows, width), fill, dtype=torch.int32),
    }


def test_buffers_load_pads_rows_and_columns(device: FakeDevice) -> None:
    buffers = InputBuffers(SPECS, largest=_size(4), device=device)

    buffers.load(_values(2, 5, width=2), own=_size(2), size=_size(4))
    device.synchronize()

    assert buffers.views(_size(4))["ids"].tolist() == [5, 5, 0, 0]
    assert buffers.views(_size(4))["table"].tolist() == [[5, 5, 7], [5, 5, 7], [7, 7, 7], [7, 7, 7]]


def test_buffers_load_resets_the_tail_of_a_larger_step_before(device: FakeDevice) -> None:
    buffers = InputBuffers(SPECS, largest=_size(4), device=device)

    for turn in range(2 * RING_DEPTH):
        buffers.load(_values(4, turn + 1), own=_size(4), size=_size(4))
        buffers.load(_values(1, 9), own=_size(1), size=_size(4))
        device.synchronize()
        assert buffers.views(_size(4))["ids"].tolist() == [9, 0, 0, 0]


def test_buffers_views_keep_their_addresses(device: FakeDevice) -> None:
    buffers = InputBuffers(SPECS, largest=_size(4), device=device)
    before = {size: buffers.views(_size(size))["table"].data_ptr() for size in (1, 2, 4)}

    buffers.load(_values(1, 1), own=_size(1), size=_size(2))

    assert len(set(before.values())) == 1
    assert all(buffers.views(_size(size))["table"].data_ptr() == before[size] for size in before)
    assert buffers.views(_size(2)) is buffers.views(_size(2))


def test_buffers_load_in_flight_is_not_overwritten_by_later_steps(device: FakeDevice) -> None:
    buffers = InputBuffers(SPECS, largest=_size(1), device=device)
    gate = device.create_external_event()
    seen = [torch.zeros(1, dtype=torch.int64) for _ in range(RING_DEPTH)]
    gate.wait(device.current_stream())

    for turn, target in enumerate(seen):
        buffers.load(_values(1, turn + 1), own=_size(1), size=_size(1))
        target.copy_(buffers.views(_size(1))["ids"])
    gate.record(device.create_stream())
    device.synchronize()

    assert [int(value) for value in seen] == [1, 2, 3, 4]
