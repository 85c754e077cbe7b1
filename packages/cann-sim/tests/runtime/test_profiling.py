"""Marks for profilers: accepted, and of no effect."""

from __future__ import annotations

from typing import Any

import torch


def test_marks_and_ranges_are_accepted_and_change_nothing(npu: Any) -> None:
    stream = npu.Stream()
    npu.mstx.mark("before")
    number = npu.mstx.range_start("step", stream)
    with npu.stream(stream):
        result = torch.ones(4).to("npu:0") + 1.0
    npu.mstx.range_end(number)
    npu.current_stream().wait_stream(stream)
    with torch.autograd.profiler.record_function("step"):
        result = result * 2.0
    assert result.cpu().tolist() == [4.0] * 4
