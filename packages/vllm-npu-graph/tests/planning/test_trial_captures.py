"""Trial captures: which batches they capture, and their forecast, on simulated CANN."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import cann_sim
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)
from vllm_npu_graph.planning.free_memory import read_free_bytes
from vllm_npu_graph.planning.trial_captures import TrialCaptures

SIZES = (512, 384, 256, 128, 64, 32)
WIDTH = 4096


class Engine:
    """Captures batches of several widths, each width's all after the others, in one pool."""

    def __init__(self) -> None:
        cann_sim.activate()
        self.device = NpuDevice(0)
        self.captured: list[tuple[int, int]] = []
        self._context = GraphContext()
        self._buffer = torch.zeros(max(SIZES), WIDTH, device="npu:0")
        self._graphed = {
            layers: GraphedCallable(
                functools.partial(self._model, layers),
                device=self.device,
                context=self._context,
                run_mode=RunMode.FULL,
                name=f"{layers} layers",
            )
            for layers in (2, 8)
        }

    @staticmethod
    def _model(layers: int, values: torch.Tensor) -> torch.Tensor:
        for _ in range(layers):
            values = torch.cat([values, values], dim=1)[:, : values.shape[1]] + 1
        return values

    def capture(self, layers: int, batches: list[Any]) -> None:
        for batch in batches:
            self.captured.append((layers, batch.num_tokens))
            with self._context.run(RunMode.FULL, GraphKey(num_tokens=batch.num_tokens)):
                self._graphed[layers](self._buffer[: batch.num_tokens])

    def capture_all(self, trial: TrialCaptures | None) -> int:
        """Return the bytes that the captures took, with those that a trial forecasts."""
        before = read_free_bytes(self.device)
        batches = [SimpleNamespace(num_tokens=size) for size in SIZES]
        with CaptureSession(self.device, self._context):
            for layers in (2, 8):
                if trial is None:
                    self.capture(layers, batches)
                else:
                    trial.capture(batches, functools.partial(self.capture, layers))
        taken = before - read_free_bytes(self.device)
        for graphed in self._graphed.values():
            graphed.release_all()
        return taken if trial is None else taken + trial.further_bytes


def test_two_sizes_of_each_mode_forecast_what_all_take() -> None:
    engine = Engine()
    trial = TrialCaptures(engine.device)
    before = read_free_bytes(engine.device)

    forecast = engine.capture_all(trial)

    assert engine.captured == [(2, 512), (2, 384), (8, 512), (8, 384)]
    assert trial.num_captures == 4
    assert read_free_bytes(engine.device) == before
    engine.captured.clear()
    taken = engine.capture_all(None)
    assert len(engine.captured) == 2 * len(SIZES)
    assert taken > 8 * 2**20
    assert forecast == pytest.approx(taken, rel=0.05)


def test_batches_of_one_size_are_captured_together() -> None:
    engine = Engine()
    trial = TrialCaptures(engine.device)
    batches = [SimpleNamespace(num_tokens=size) for size in (512, 512, 256)]
    with CaptureSession(engine.device, engine._context):
        chosen: list[list[int]] = []

        def capture(given: list[Any]) -> None:
            chosen.append([batch.num_tokens for batch in given])
            engine.capture(2, given[:1])

        trial.capture(batches, capture)
        trial.capture([], capture)

    assert chosen == [[512, 512], [256]]
    assert trial.num_captures == 3
