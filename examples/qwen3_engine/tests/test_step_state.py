"""Tests of qwen3_engine.serving.step_state."""

from __future__ import annotations

from qwen3_engine.serving.step_state import StepState


def test_load_lengths_of_a_step_replace_those_before() -> None:
    state = StepState()
    state.load([9], [9])

    state.load((3, 1, 2), (3, 8, 2))

    assert state.cumulative_query_lengths == [3, 4, 6]
    assert state.kv_lengths == [3, 8, 2]
