"""Steps whose run mode and bucket the ranks agreed on; idle ranks among them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, DecodeRunner, InputError, InputSpec, PrefillRunner
from npu_graph_runtime import AgreedStep, RunMode

if TYPE_CHECKING:
    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime import FakeDevice

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
EAGER = AgreedStep(mode=RunMode.EAGER, bucket=None, num_tokens=(1, 9))


def agreed(mode: RunMode, bucket: int) -> AgreedStep:
    return AgreedStep(mode=mode, bucket=bucket, num_tokens=(1, bucket))


def inputs(rows: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(rows), "table": torch.ones(rows, 2)}


class Setting:
    """A decoder with captured decode and prefill runners, and the last lengths of its attention."""

    def __init__(
        self, decoder: Decoder, attention: AttentionOperator, device: FakeDevice, mode: str
    ) -> None:
        self.decoder, self.attention, self.device = decoder, attention, device
        config = CompileConfig.from_mapping(
            {
                "mode": mode,
                "capture_sizes": (1, 2, 4),
                "prefill_capture_sizes": (8, 16),
                "splitting_ops": [attention.name],
            }
        )
        dims = dict.fromkeys(SPECS, (0,))
        self.compiled = npu_compile.compile_model(
            decoder, config, device=device, dynamic_arg_dims=dims
        )
        full = config.mode.decode_run_mode is RunMode.FULL
        updating: dict[str, Any] = {}
        if full:
            updating = {"recorder": Recorder(device), "lane": UpdateLane(device)}
        self.decode = DecodeRunner(self.compiled, inputs=SPECS, set_lengths=self._set, **updating)
        self.prefill = PrefillRunner(
            self.compiled,
            inputs=SPECS,
            max_sequences=4,
            set_lengths=self._set,
            groups={},
            **updating,
        )
        self.prefill.capture(self._prepare)
        self.decode.capture(self._prepare)

    def _prepare(self, size: int) -> None:
        self.attention.lengths = [0] * size

    def _set(self, lengths: Any) -> None:
        self.attention.lengths = lengths.get("rows", {}).get("lengths", [])

    def check(self, runner: DecodeRunner | PrefillRunner, rows: int, step: AgreedStep) -> None:
        """Run a batch as agreed and compare its rows with those of the model run by itself."""
        size = rows if step.bucket is None else step.bucket
        lengths = {"rows": {"lengths": [0] * size}}
        full = step.mode is RunMode.FULL
        output = runner.run(inputs(rows), {} if full else lengths, agreed=step).clone()
        self.device.synchronize()
        self.attention.lengths = [0] * rows
        assert output.shape[0] == rows
        if rows:
            torch.testing.assert_close(output, self.decoder(**inputs(rows)))


@pytest.fixture(params=["full", "full_decode_and_piecewise", "piecewise"])
def setting(
    request: pytest.FixtureRequest,
    decoder: Decoder,
    attention: AttentionOperator,
    device: FakeDevice,
) -> Setting:
    return Setting(decoder, attention, device, request.param)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_decode_pads_to_the_agreed_bucket(setting: Setting, rows: int) -> None:
    mode = setting.compiled.config.mode.decode_run_mode

    setting.check(setting.decode, rows, agreed(mode, 4))


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_prefill_pads_to_the_agreed_bucket(setting: Setting, rows: int) -> None:
    mode = setting.compiled.config.mode.prefill_run_mode

    setting.check(setting.prefill, rows, agreed(mode, 16))


def test_step_agreed_to_run_eagerly_gives_no_warning(setting: Setting) -> None:
    setting.compiled.release()
    # Dynamo has warnings of its own, on Python 3.13.0 for one.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Of a capture size, whose graph is gone: a replay would fail.
        setting.check(setting.decode, 4, EAGER)
        setting.check(setting.prefill, 8, EAGER)
    assert not [each for each in caught if "so it runs eagerly" in str(each.message)]


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (agreed(RunMode.PIECEWISE, 4), 1),
        (agreed(RunMode.FULL, 3), 1),
        (agreed(RunMode.BREAKABLE, 32), 1),
        (agreed(RunMode.FULL, 2), 3),
    ],
)
def test_step_that_does_not_fit_the_runner_launches_nothing(
    decoder: Decoder,
    attention: AttentionOperator,
    device: FakeDevice,
    step: AgreedStep,
    rows: int,
) -> None:
    setting = Setting(decoder, attention, device, "full_decode_and_piecewise")
    calls = attention.num_calls

    with pytest.raises(InputError, match=r"ranks agreed on|found 3 rows, expected 0 to 2"):
        setting.decode.run(inputs(rows), {}, agreed=step)
    assert attention.num_calls == calls
