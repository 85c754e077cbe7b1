"""A budget of captured graphs: what runners measure, report and drop, and what replays instead."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, ConfigError, DecodeRunner, InputSpec, PrefillRunner
from npu_graph_runtime import FakeDevice, RunMode
from npu_graph_runtime.planning import CaptureBudget

if TYPE_CHECKING:
    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime.planning import CapturePlan

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
SIZES = (1, 2, 4, 8, 16)
SEGMENTS = 3  # of the decoder with two layers


class Setting:
    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionOperator,
        mode: str,
        budget: dict[str, int] | None,
        *,
        device: FakeDevice | None = None,
    ) -> None:
        self.decoder, self.attention = decoder, attention
        self.device = FakeDevice() if device is None else device
        config = {
            "mode": mode,
            "capture_sizes": SIZES,
            "prefill_capture_sizes": (4, 32),
            "splitting_ops": [attention.name],
            "capture_budget": budget,
        }
        self.compiled = npu_compile.compile_model(
            decoder, config, device=self.device, dynamic_arg_dims=dict.fromkeys(SPECS, (0,))
        )
        full = self.compiled.config.mode.decode_run_mode is RunMode.FULL
        updating: dict[str, Any] = {}
        if full:
            updating = {"recorder": Recorder(self.device), "lane": UpdateLane(self.device)}
        self.runner = DecodeRunner(
            self.compiled, inputs=SPECS, set_lengths=self._set, observer=self, **updating
        )
        self.prefill = PrefillRunner(
            self.compiled,
            inputs=SPECS,
            max_sequences=4,
            set_lengths=self._set,
            groups={},
            **updating,
        )
        self.steps: list[tuple[int, RunMode]] = []
        self.captured: list[tuple[int, int, int]] = []
        self.forecasts: list[tuple[CapturePlan, int]] = []

    def observe_decode(self, step: npu_compile.DecodeStep, /) -> None:
        self.steps.append((step.padded_size, step.run_mode))

    def _set(self, lengths: Any) -> None:
        self.attention.lengths = lengths.get("rows", {}).get("lengths", [])

    def _prepare(self, size: int) -> None:
        self.attention.lengths = [0] * size

    def capture(self, runner: DecodeRunner | PrefillRunner | None = None) -> list[str]:
        """Capture, and return the warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (runner or self.runner).capture(
                self._prepare,
                on_captured=lambda *numbers: self.captured.append(numbers),
                on_forecast=lambda plan: self.forecasts.append((plan, len(self.captured))),
            )
        return [str(each.message) for each in caught if "capturing" in str(each.message)]

    def run(self, rows: int) -> tuple[int, RunMode]:
        """Run a batch, compare it with the model, and return how it ran."""
        inputs = {"input_ids": torch.arange(rows), "table": torch.ones(rows, 2)}
        is_full = self.compiled.config.mode.decode_run_mode is RunMode.FULL
        lengths = {} if is_full else {"rows": {"lengths": [0] * self.runner.padded_size(rows)}}
        output = self.runner.run(inputs, lengths).clone()
        self.device.synchronize()
        self.attention.lengths = [0] * rows
        torch.testing.assert_close(output, self.decoder(**inputs))
        return self.steps[-1]


@pytest.mark.parametrize(("mode", "each"), [("full", 1), ("piecewise", SEGMENTS)])
def test_sizes_beyond_the_budget_are_left_out_and_their_batches_padded_further(
    decoder: Decoder, attention: AttentionOperator, mode: str, each: int
) -> None:
    setting = Setting(decoder, attention, mode, {"streams": 3 * each + each - 1})

    (said,) = setting.capture()

    plan = setting.runner.capture_plan
    assert plan is not None
    assert plan.sizes == (1, 4, 16)
    assert set(plan.dropped) == {2, 8}
    assert f"size 8 dropped: it would take about {each} streams" in said
    assert "padded to the next larger size" in said
    assert setting.device.free_streams() == 2048 - 3 * each
    assert setting.captured == [(16, 1, 3), (4, 2, 3), (1, 3, 3)]
    assert [setting.run(rows)[0] for rows in (1, 2, 4, 5, 16)] == [1, 4, 4, 16, 16]
    assert RunMode.EAGER not in {mode for _, mode in setting.steps}


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_forecast_is_reported_after_two_captures_and_is_right(
    decoder: Decoder, attention: AttentionOperator, mode: str
) -> None:
    setting = Setting(decoder, attention, mode, {})

    assert setting.capture() == []

    ((plan, num_captured),) = setting.forecasts
    assert num_captured == 1  # the second is reported after the forecast
    assert plan.planned == (4, 2, 1)
    assert plan.forecast is not None
    final = setting.runner.capture_plan
    assert final is not None
    assert final.used.streams == plan.forecast.streams
    assert final.used.num_bytes == pytest.approx(plan.forecast.num_bytes, rel=0.05)
    figures = setting.device.memory_figures()
    assert final.used.num_bytes == figures.total - figures.free


def test_runners_of_a_model_share_the_budget_and_releasing_gives_it_back(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    setting = Setting(decoder, attention, "piecewise", {"streams": 6 * SEGMENTS})

    assert setting.capture() == []
    setting.capture(setting.prefill)

    assert [plan.sizes for plan in setting.compiled.capture_plans] == [SIZES, (32,)]
    setting.prefill.release()
    setting.runner.release()
    assert not [*setting.compiled.capture_plans]
    assert setting.capture(setting.prefill) == []
    assert setting.prefill.capture_plan is not None
    assert setting.prefill.capture_plan.sizes == (4, 32)


def test_budget_that_holds_no_size_is_an_error_with_the_figures(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    setting = Setting(decoder, attention, "piecewise", {"streams": SEGMENTS - 1})

    with pytest.raises(ConfigError, match=r"(?s)holds none of the capture sizes.*size 16 dropped"):
        setting.capture()

    assert setting.device.free_streams() == 2048
    assert setting.compiled.num_captured_graphs == 0


def test_size_above_the_budget_gives_up_its_plan_and_records_with_its_graph(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    device = FakeDevice()
    alone = Setting(decoder, attention, "full", {}, device=device)
    alone.capture()
    largest = alone.runner.capture_plan
    assert largest is not None
    limit = largest.captured[16].num_bytes - 1
    alone.runner.release()
    setting = Setting(decoder, attention, "full", {"num_bytes": limit}, device=device)

    (said,) = setting.capture()

    assert "size 16 dropped: its capture took" in said
    assert setting.runner.capture_plan is not None
    assert setting.runner.capture_plan.sizes[-1] == 8
    assert setting.run(8) == (8, RunMode.FULL)
    assert {key.num_tokens for key in setting.compiled.captured_keys} == set(
        setting.runner.capture_plan.sizes
    )


def test_budget_is_read_from_a_mapping_and_written_back() -> None:
    config = CompileConfig.from_mapping({"capture_budget": {"streams": 8}})

    assert config.capture_budget == CaptureBudget(streams=8)
    assert config.to_mapping()["capture_budget"] == {"streams": 8}
    assert CompileConfig.from_mapping(config.to_mapping()) == config
    assert CompileConfig().to_mapping()["capture_budget"] is None


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"stream": 8}, "unknown key 'stream' of capture_budget; did you mean 'streams'"),
        (8, "must be a mapping of streams and num_bytes, found 8"),
        ({"streams": 0}, "expected a whole number of at least 1"),
    ],
)
def test_budget_that_cannot_be_is_refused(budget: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CompileConfig.from_mapping({"capture_budget": budget})
