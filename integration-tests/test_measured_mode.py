"""Mode measured on the example engine: what it chooses where counts decide, and what is left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import qwen3_engine.serving.compiled_model_runner as adoption
from attn_update import UpdateLane
from npu_graph_runtime import RunMode
from qwen3_engine.serving.compiled_model_runner import CompiledModelRunner
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

SIZES = (2, 4)
PREFILL_SIZES = (16, 64)
LAYERS = 6


@pytest.fixture(scope="module")
def deep_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3_deep")
    return write_tiny_checkpoint(folder, shape=TinyShape(num_layers=LAYERS))


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> list[UpdateLane]:
    """The update lanes that engines make."""
    made: list[UpdateLane] = []

    def make(*args: Any, **options: Any) -> UpdateLane:
        made.append(UpdateLane(*args, **options))
        return made[-1]

    monkeypatch.setattr(adoption, "UpdateLane", make)
    return made


@contextlib.contextmanager
def captured(
    folder: Path, device: NpuDevice, mode: str
) -> Iterator[tuple[CompiledModelRunner, int]]:
    """Yield an engine's runner with its graphs captured, and the bytes that these reserve."""

    def reserved() -> int:
        device.synchronize()
        device.empty_cache()
        return device.memory_figures().reserved

    runner = CompiledModelRunner.load(
        folder,
        {"mode": mode, "capture_sizes": SIZES, "prefill_capture_sizes": PREFILL_SIZES},
        device=device,
        num_blocks=8,
        max_length=128,
    )
    try:
        before = reserved()
        runner.capture()
        yield runner, reserved() - before
    finally:
        runner.close()


def test_one_replay_is_chosen_over_many_launches_and_nothing_else_is_kept(
    deep_checkpoint: Path, device: NpuDevice, lanes: list[UpdateLane]
) -> None:
    with captured(deep_checkpoint, device, "full_decode_and_piecewise") as (runner, expected_bytes):
        expected_graphs = runner.compiled.num_captured_graphs

    with captured(deep_checkpoint, device, "measured") as (runner, num_bytes):
        choices = {choice.key.num_tokens: choice for choice in runner.run_mode_choices}
        num_graphs = runner.compiled.num_captured_graphs

    # A replay against some 15 launches a layer; segments replay between eager attention.
    assert {size: choice.chosen for size, choice in choices.items()} == {
        **dict.fromkeys(SIZES, RunMode.FULL),
        **dict.fromkeys(PREFILL_SIZES, RunMode.BREAKABLE),
    }, [str(choice) for choice in choices.values()]
    assert set(choices[2].seconds) == {RunMode.EAGER, RunMode.FULL, RunMode.BREAKABLE}
    assert set(choices[16].seconds) == {RunMode.EAGER, RunMode.BREAKABLE}
    assert num_graphs == expected_graphs
    assert num_bytes == expected_bytes
    # Each measured step in mode full rewrote every launch, as a step of serving does.
    counters = lanes[-1].counters
    assert counters.steps == len(SIZES) * (2 + choices[2].rounds)
    assert counters.updates == counters.steps * LAYERS
    assert counters.skipped == 0
