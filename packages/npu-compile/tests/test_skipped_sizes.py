"""Sizes that the device refuses to capture: raised, or left out visibly."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, DecodeRunner, InputSpec
from npu_compile.errors import RunnerStateError
from npu_graph_runtime import FakeDevice, RunMode
from npu_graph_runtime.errors import OutOfDeviceMemoryError

if TYPE_CHECKING:
    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime.device import DeviceGraph

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
MODES = ["full", "piecewise"]


class SmallDevice(FakeDevice):
    """Has no memory for some graphs, counted from the first."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.refused = set(refused)
        self.num_graphs = 0

    def create_graph(self) -> DeviceGraph:
        self.num_graphs += 1
        if self.num_graphs in self.refused:
            raise RuntimeError(f"graph {self.num_graphs}: NPU function error, error code is 207001")
        return super().create_graph()


class Setting:
    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionOperator,
        device: SmallDevice,
        mode: str,
        failure: str = "skip_size",
    ) -> None:
        self.decoder, self.attention, self.device = decoder, attention, device
        config = CompileConfig.from_mapping(
            {
                "mode": mode,
                "capture_sizes": (1, 2, 4),
                "splitting_ops": [attention.name],
                "capture_failure": failure,
            }
        )
        dims = dict.fromkeys(SPECS, (0,))
        self.compiled = npu_compile.compile_model(
            decoder, config, device=device, dynamic_arg_dims=dims
        )
        self.modes: list[tuple[int, RunMode]] = []
        full = mode == "full"
        self.runner = DecodeRunner(
            self.compiled,
            inputs=SPECS,
            recorder=Recorder(device) if full else None,
            lane=UpdateLane(device) if full else None,
            set_lengths=self._set,
            observer=self,
        )

    def observe_decode(self, step: npu_compile.DecodeStep, /) -> None:
        self.modes.append((step.padded_size, step.run_mode))

    def _set(self, lengths: Any) -> None:
        self.attention.lengths = lengths.get("rows", {}).get("lengths", [])

    def capture(self) -> list[str]:
        """Capture, and return the warnings."""

        def prepare(size: int) -> None:
            self.attention.lengths = [0] * size

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.runner.capture(prepare)
        return [str(each.message) for each in caught if "capturing" in str(each.message)]

    def run(self, rows: int) -> tuple[int, RunMode]:
        """Run a batch, compare it with the model, and return how it ran."""
        inputs = {"input_ids": torch.arange(rows), "table": torch.ones(rows, 2)}
        size = self.runner.padded_size(rows)
        is_full = self.compiled.config.mode.decode_run_mode is RunMode.FULL
        captured = set(self.compiled.config.capture_sizes) - set(self.runner.skipped_sizes)
        replays = is_full and size in captured
        lengths = {} if replays else {"rows": {"lengths": [0] * size}}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="running a decode batch of")
            output = self.runner.run(inputs, lengths).clone()
        self.device.synchronize()
        self.attention.lengths = [0] * rows
        torch.testing.assert_close(output, self.decoder(**inputs))
        return self.modes[-1]


@pytest.mark.parametrize("mode", MODES)
def test_largest_size_that_is_refused_leaves_the_others(
    decoder: Decoder, attention: AttentionOperator, mode: str
) -> None:
    setting = Setting(decoder, attention, SmallDevice(1), mode)

    (said,) = setting.capture()

    assert "capturing the decode graph of 4 rows" in said
    assert "run eagerly" in said
    refusal = setting.runner.skipped_sizes[4]
    assert isinstance(refusal, OutOfDeviceMemoryError)
    # Frames would hold what the capture had on the device.
    assert (refusal.__traceback__, refusal.__cause__, refusal.__context__) == (None, None, None)
    captured = setting.compiled.config.mode.decode_run_mode
    assert [setting.run(rows) for rows in (1, 2, 3, 4)] == [
        (1, captured),
        (2, captured),
        (3, RunMode.EAGER),
        (4, RunMode.EAGER),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_a_middle_size_that_is_refused_use_the_next_larger_graph(
    decoder: Decoder, attention: AttentionOperator, mode: str
) -> None:
    # Piecewise, a size has three graphs; the second of the second size is refused.
    setting = Setting(decoder, attention, SmallDevice(2 if mode == "full" else 5), mode)

    (said,) = setting.capture()

    assert "of 2 rows" in said
    assert "are padded to 4" in said
    captured = setting.compiled.config.mode.decode_run_mode
    assert [setting.run(rows) for rows in (1, 2, 3)] == [
        (1, captured),
        (4, captured),
        (4, captured),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_refusal_of_every_size_is_raised_and_capture_works_later(
    decoder: Decoder, attention: AttentionOperator, mode: str
) -> None:
    device = SmallDevice(*range(1, 20))
    setting = Setting(decoder, attention, device, mode)

    with pytest.raises(OutOfDeviceMemoryError, match="num_tokens=4"):
        setting.capture()
    assert setting.compiled.num_captured_graphs == 0
    with pytest.raises(RunnerStateError):
        setting.run(1)

    device.refused.clear()
    assert setting.capture() == []
    assert setting.runner.skipped_sizes == {}
    assert setting.run(3)[0] == 4


def test_refusal_is_raised_by_default_and_nothing_stays(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    setting = Setting(decoder, attention, SmallDevice(2), "full", "raise")

    with pytest.raises(OutOfDeviceMemoryError):
        setting.capture()
    assert setting.compiled.num_captured_graphs == 0
    assert CompileConfig().capture_failure.value == "raise"
