"""A Qwen3 model decodes the same tokens, bitwise, however it runs; and they are the right ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch

import cann_sim
from attn_update import StepParameters, UpdateLane
from npu_graph_runtime import RunMode
from qwen3_engine import FinishReason, ReferenceModel, compare_with_reference
from qwen3_engine.demonstration.comparison import logit_tolerance
from qwen3_engine.demonstration.mode_run import (
    ModeResult,
    ModeSettings,
    differing_requests,
    run_mode,
)
from qwen3_engine.demonstration.workload import mixed_arrivals
from qwen3_engine.tiny_checkpoint import TinyShape

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attn_update import UpdatePlan
    from npu_graph_runtime import NpuDevice
    from qwen3_engine import RequestOutput
    from qwen3_engine.demonstration.workload import Arrival

SHAPE = TinyShape()
MODES = ("eager", "full", "piecewise")
RUN_MODES = {"full": RunMode.FULL, "piecewise": RunMode.BREAKABLE}


def _arrivals() -> tuple[Arrival, ...]:
    return mixed_arrivals(
        (5, 127, 300, 1, 64, 128, 17, 200, 129, 33),
        vocab_size=SHAPE.vocab_size,
        output_tokens=(40, 72, 24, 56),
        steps_between=19,
        sampled_every=4,
    )


def _settings(folder: Path) -> ModeSettings:
    return ModeSettings(
        folder=folder, capture_sizes=(1, 2, 4), num_blocks=20, max_length=384, max_num_sequences=4
    )


def _greedy(result: ModeResult) -> list[RequestOutput]:
    pairs = zip(result.outputs, _arrivals(), strict=True)
    return [output for output, arrival in pairs if arrival.request.sampling.temperature == 0]


@pytest.fixture(scope="module")
def results(checkpoint: Path, device: NpuDevice) -> dict[str, ModeResult]:
    return {
        mode: run_mode(
            mode,
            _settings(checkpoint),
            _arrivals(),
            device=device,
            count_launches=lambda: cann_sim.counters().launches,
        )
        for mode in MODES
    }


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> ReferenceModel:
    return ReferenceModel(checkpoint)


def test_workload_has_many_decode_steps_of_changing_size(results: dict[str, ModeResult]) -> None:
    steps = results["eager"].decode_steps

    assert len(steps) >= 200
    assert {step.num_rows for step in steps} == {1, 2, 3, 4}
    assert {step.padded_size for step in steps} == {1, 2, 4}
    assert all(output.finish_reason is FinishReason.LENGTH for output in results["eager"].outputs)


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_captured_mode_gives_the_logits_of_eager_bitwise(
    mode: str, results: dict[str, ModeResult]
) -> None:
    assert len(results[mode].decode_steps) == len(results["eager"].decode_steps)
    assert {step.run_mode for step in results[mode].decode_steps} == {RUN_MODES[mode]}
    assert differing_requests(results[mode], results["eager"]) == []


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_steps_that_run_eagerly_too_give_the_logits_of_eager_bitwise(
    mode: str, checkpoint: Path, device: NpuDevice, results: dict[str, ModeResult]
) -> None:
    """One captured step of seven is compared; caches and lengths are those of one run."""
    options = {"shadow_every": 7, "capture_guard": "raise"}
    settings = dataclasses.replace(_settings(checkpoint), options=options)

    compared = run_mode(
        mode,
        settings,
        _arrivals(),
        device=device,
        count_launches=lambda: cann_sim.counters().launches,
    )

    assert differing_requests(compared, results["eager"]) == []
    assert sum(compared.launches) > 1.1 * sum(results[mode].launches)


def test_padded_batch_is_close_to_the_batch_without_padding(
    checkpoint: Path, device: NpuDevice, results: dict[str, ModeResult]
) -> None:
    settings = dataclasses.replace(_settings(checkpoint), capture_sizes=())

    unpadded = run_mode("eager", settings, _arrivals(), device=device)

    assert all(step.padded_size == step.num_rows for step in unpadded.decode_steps)
    for output, other in zip(results["full"].outputs, unpadded.outputs, strict=True):
        assert output.logits is not None
        assert other.logits is not None
        pairs = zip(output.tokens, other.tokens, strict=True)
        num_equal = next((i for i, (a, b) in enumerate(pairs) if a != b), len(output.tokens) - 1)
        # Up to the first token that differs both have computed the same text.
        logits, expected = output.logits[: num_equal + 1], other.logits[: num_equal + 1]
        tolerance = logit_tolerance(
            torch.bfloat16,
            num_layers=SHAPE.num_layers,
            logits_rms=float(expected.square().mean().sqrt()),
        )
        assert float((logits - expected).abs().max()) <= tolerance


@pytest.mark.parametrize("mode", MODES)
def test_mode_agrees_with_transformers(
    mode: str, results: dict[str, ModeResult], reference: ReferenceModel
) -> None:
    verdict = compare_with_reference(
        _greedy(results[mode]), reference, dtype=torch.bfloat16, num_layers=SHAPE.num_layers
    )

    assert verdict.agrees, str(verdict)
    assert verdict.num_decided > 100


def test_every_layer_is_fused(results: dict[str, ModeResult]) -> None:
    for result in results.values():
        fusions = result.reports[0].fusions
        assert fusions is not None
        counts = fusions.match_counts()
        # Two sums a layer, each followed by a norm; one attention and one feed-forward block.
        assert counts["fuse_add_rms_norm"] == 2 * SHAPE.num_layers, str(fusions)
        # No vendor kernel is here, without which it would launch more than it saves.
        (reason,) = {miss.reason for miss in fusions.near_misses("fuse_split_qkv_rms_norm_rope")}
        assert reason.startswith("no vendor kernel")
        assert counts["fuse_swiglu"] == SHAPE.num_layers, str(fusions)


def test_graphs_are_captured_for_every_size_and_piece(results: dict[str, ModeResult]) -> None:
    assert results["eager"].num_graphs == 0
    assert results["full"].num_graphs == 3
    assert results["piecewise"].num_graphs == 3 * (SHAPE.num_layers + 1)


def test_full_launches_far_fewer_operators(results: dict[str, ModeResult]) -> None:
    assert results["full"].median_launches * 5 <= results["eager"].median_launches


def test_piecewise_launches_nothing_but_attention_between_its_pieces(
    results: dict[str, ModeResult],
) -> None:
    # And one product after them, for the logits.
    assert results["piecewise"].median_launches == SHAPE.num_layers + 1


class _StaleLane(UpdateLane):
    """Replays and releases the graph, always with the lengths of each key's first step."""

    def run(  # type: ignore[override]
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], torch.Tensor],
    ) -> torch.Tensor:
        first = self.__dict__.setdefault("first", {}).setdefault(plan.key, parameters)
        return super().run(plan, first, replay)


def test_full_without_the_update_gives_wrong_tokens(
    checkpoint: Path,
    device: NpuDevice,
    results: dict[str, ModeResult],
    reference: ReferenceModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3_engine.serving.compiled_model_runner.UpdateLane", _StaleLane)

    stale = run_mode("full", _settings(checkpoint), _arrivals(), device=device)

    verdict = compare_with_reference(
        _greedy(stale), reference, dtype=torch.bfloat16, num_layers=SHAPE.num_layers
    )
    assert differing_requests(stale, results["eager"]) != []
    assert not verdict.agrees
    assert verdict.mismatches


def test_half_precision_modes_are_bitwise_equal_and_right(
    half_checkpoint: Path, device: NpuDevice
) -> None:
    arrivals = mixed_arrivals(
        (3, 130, 40), vocab_size=SHAPE.vocab_size, output_tokens=(24,), steps_between=5
    )
    settings = _settings(half_checkpoint)

    eager, full, piecewise = (run_mode(mode, settings, arrivals, device=device) for mode in MODES)
    verdict = compare_with_reference(
        full.outputs,
        ReferenceModel(half_checkpoint),
        dtype=torch.float16,
        num_layers=SHAPE.num_layers,
    )

    assert differing_requests(full, eager) == []
    assert differing_requests(piecewise, eager) == []
    assert verdict.agrees, str(verdict)


def test_fused_and_plain_graphs_agree_with_the_reference_alike(
    checkpoint: Path, device: NpuDevice, reference: ReferenceModel
) -> None:
    arrivals = mixed_arrivals(
        (9, 140), vocab_size=SHAPE.vocab_size, output_tokens=(16,), steps_between=3
    )
    settings = _settings(checkpoint)
    plain = dataclasses.replace(settings, options={"fuse": False})

    for each in (settings, plain):
        result = run_mode("full", each, arrivals, device=device)
        verdict = compare_with_reference(
            result.outputs, reference, dtype=torch.bfloat16, num_layers=SHAPE.num_layers
        )
        assert verdict.agrees, str(verdict)
        assert {step.run_mode for step in result.decode_steps} == {RunMode.FULL}
