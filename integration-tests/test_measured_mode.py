"""The mode `measured` on the example engine: its choice if counts decide, and what remains."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
import qwen3_engine.serving.compiled_model_runner as adoption
from attn_update import UpdateLane
from npu_graph_runtime import RunMode
from npu_graph_runtime.planning import RunModeChooser
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from qwen3_engine.tiny_checkpoint import TinyShape

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

SIZES = (2, 4)
PREFILL_SIZES = (16, 64)
LAYERS = TinyShape().num_layers


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> list[UpdateLane]:
    """The update lanes that engines make."""
    made: list[UpdateLane] = []

    def make(*args: Any, **options: Any) -> UpdateLane:
        made.append(UpdateLane(*args, **options))
        return made[-1]

    monkeypatch.setattr(adoption, "UpdateLane", make)
    return made


def test_one_replay_is_chosen_over_many_launches_and_nothing_else_is_kept(
    checkpoint: Path,
    device: NpuDevice,
    lanes: list[UpdateLane],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def calls_so_far() -> float:
        device.synchronize()
        counters = cann_sim.counters()
        return float(counters.launches + counters.replays + counters.task_updates)

    # The host's calls of the device represent its time, so that the machine's load does not matter.
    by_calls = functools.partial(RunModeChooser, clock=calls_so_far)
    monkeypatch.setattr("npu_compile.runners.capture_schedule.RunModeChooser", by_calls)
    runner = CompiledModelRunner.load(
        checkpoint,
        {"mode": "measured", "capture_sizes": SIZES, "prefill_capture_sizes": PREFILL_SIZES},
        device=device,
        num_blocks=8,
        max_length=128,
    )
    try:
        runner.capture()
        choices = {choice.key.num_tokens: choice for choice in runner.run_mode_choices}
        num_graphs = runner.compiled.num_captured_graphs
    finally:
        runner.close()

    # A replay and an update a layer; segments replay between eager attention.
    expected = dict.fromkeys((*SIZES, *PREFILL_SIZES), RunMode.FULL)
    found = {size: choice.chosen for size, choice in choices.items()}
    assert found == expected, [str(choice) for choice in choices.values()]
    for size in (2, 16):
        calls = choices[size].seconds
        assert calls[RunMode.FULL] == 1 + LAYERS
        assert calls[RunMode.FULL] < calls[RunMode.BREAKABLE] < calls[RunMode.EAGER]
    assert num_graphs == len(SIZES) + len(PREFILL_SIZES)
    # Each measured step in mode full rewrote every launch, as a step of serving does.
    counters = lanes[-1].counters
    assert counters.steps == sum(2 + choice.rounds for choice in choices.values())
    assert counters.updates == counters.steps * LAYERS
    assert counters.skipped == 0
