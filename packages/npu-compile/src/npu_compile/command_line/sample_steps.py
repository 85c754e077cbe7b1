"""Runs decode steps of a named model in one mode, compiled and captured as in an engine."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, UpdateLane
from npu_compile.compilation.compiled_model import compile_model
from npu_compile.configuration.config import CompileMode
from npu_compile.errors import ConfigError
from npu_compile.inputs.input_spec import InputSpec
from npu_compile.runners.decode_runner import DecodeRunner
from npu_compile.runners.prefill_runner import PrefillRunner
from npu_graph_runtime import NpuDevice, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npu_compile.command_line.named_model import NamedModel
    from npu_compile.configuration.config import CompileConfig
    from npu_compile.runners.step_runner import DecodeStep
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.observer import RuntimeObserver
    from npu_graph_runtime.planning import CapturePlan


class SampleSteps:
    """Runs the example inputs of a named model, step after step.

    Several instances may exist for one model at a time, one per mode: they share weights, recorder
    and context, and never replay each other's captures. Only one of them may capture attention in
    its graphs, because the recorder stores records by graph key.

    Args:
        config: replaces the model's own configuration.
        observer: receives captures and replays.

    Attributes:
        latest: the latest step.
        observed_at: the time at which it returned.
        runner: runner of the decode steps.
        prefill_runner: runner of prefill, if the model declares prefill and its mode captures it.

    Raises:
        ConfigError: The model lacks what the mode needs, or the configuration is invalid.
    """

    def __init__(
        self,
        named: NamedModel,
        config: CompileConfig,
        *,
        device: GraphDevice,
        observer: RuntimeObserver | None = None,
    ) -> None:
        self.device = device
        self.latest: DecodeStep
        self.observed_at: float
        rows = {
            name: value
            for name, value in named.inputs.items()
            if isinstance(value, torch.Tensor) and value.dim()
        }
        if not rows or len(rows) != len(named.inputs):
            raise ConfigError(
                f"running {list(named.inputs)}: expected that each input is a tensor of at least "
                f"one dimension; of those are {list(rows)}"
            )
        # As an engine has them; explain wants them where the model is.
        self._inputs = {name: value.cpu() for name, value in rows.items()}
        self._num_rows: int = next(iter(rows.values())).shape[0]
        given = dict(named.decode)
        self._lengths: Callable[[int, int], Mapping[str, Any]] = given.pop("lengths", _no_lengths)
        self._set_lengths: Callable[[Mapping[str, Any]], object] = given.get(
            "set_lengths", _no_lengths
        )
        if config.mode is not CompileMode.EAGER and not config.capture_sizes:
            config = dataclasses.replace(config, capture_sizes=(self._num_rows,))
        specs = {
            name: InputSpec(dtype=value.dtype, trailing_shape=tuple(value.shape[1:]))
            for name, value in rows.items()
        }
        self._specs = given.pop("inputs", specs)
        self._compiled = compile_model(
            named.model,
            config,
            device=device,
            dynamic_arg_dims=named.dynamic_arg_dims,
            context=named.context,
            pipeline=named.pipeline,
            observer=observer,
        )
        is_full = RunMode.FULL in config.decode_run_modes
        self._own_recorder: Recorder | None = None
        if is_full and not tells_lengths(named):
            self._own_recorder = given["recorder"] = Recorder(device)
        self._lane = UpdateLane(device) if is_full and given.get("recorder") is not None else None
        self.runner = DecodeRunner(
            self._compiled,
            inputs=self._specs,
            lane=self._lane,
            observer=self,
            **given,
        )
        self.prefill_runner = self._prefill_runner(
            named.prefill, config, recorder=given.get("recorder"), groups=given.get("groups", {})
        )

    @classmethod
    def device_of(cls, named: NamedModel) -> GraphDevice:
        """Return the device of a named model: its own, or the current NPU.

        Raises:
            DeviceUnavailableError: It has none, and there is no NPU.
        """
        device: GraphDevice = NpuDevice() if named.device is None else named.device
        return device

    def capture(
        self,
        on_captured: Callable[[int, int, int], None] | None = None,
        on_forecast: Callable[[CapturePlan], None] | None = None,
    ) -> None:
        """Capture all sizes of decode, and of prefill if the mode captures it."""
        prefill = self.prefill_runner
        if prefill is not None:
            set_lengths, lengths = self._prefill_set_lengths, self._prefill_lengths
            prefill.capture(
                lambda size: set_lengths(lengths(size, prefill.padded_sequences(size))),
                on_captured=on_captured,
                on_forecast=on_forecast,
            )
        self.runner.capture(
            lambda size: self._set_lengths(self._lengths(size, 0)),
            on_captured=on_captured,
            on_forecast=on_forecast,
        )

    def observe_decode(self, step: DecodeStep, /) -> None:
        """Keep the host time of a step."""
        self.latest, self.observed_at = step, time.perf_counter()

    def run(self, number: int) -> Any:
        """Run step ``number``, from 0, which determines the lengths, and return its output."""
        padded = self.runner.padded_size(self._num_rows)
        return self.runner.run(self._inputs, self._lengths(padded, number))

    def close(self) -> None:
        """Wait for the device and release everything that does not belong to the model."""
        if self.prefill_runner is not None:
            self.prefill_runner.release()
        self.runner.release()
        if self._lane is not None:
            self._lane.close()
        if self._own_recorder is not None:
            self._own_recorder.close()

    def _prefill_runner(
        self, given: Mapping[str, Any] | None, config: CompileConfig, **of_decode: Any
    ) -> PrefillRunner | None:
        captures = config.prefill_run_modes != (RunMode.EAGER,)
        if given is None or not captures or not config.prefill_capture_sizes:
            return None
        arguments = {"inputs": self._specs, "lane": self._lane, **of_decode, **given}
        self._prefill_lengths = arguments.pop("lengths", _no_lengths)
        self._prefill_set_lengths: Callable[[Any], None] = arguments["set_lengths"]
        return PrefillRunner(self._compiled, **arguments)


def tells_lengths(named: NamedModel) -> bool:
    """Return whether a model has attention with host lengths."""
    return bool({"lengths", "recorder"} & named.decode.keys())


def _no_lengths(*_: object) -> Mapping[str, Any]:
    return {}
