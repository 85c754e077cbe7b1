"""Captured graphs, each with the update plan of its attention; keys come from the caller."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attn_update import Recorder, UpdateLane
from npu_compile.compilation.compiled_model import CompiledModel
from npu_compile.errors import ConfigError, RunnerStateError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_compile.runners.runner_arguments import require_instance, require_prepare
from npu_graph_runtime import GraphKey, RunMode, largest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from torch import Tensor

    from attn_update import Lengths, ParameterGroup, UpdatePlan


class CapturedSteps:
    """Captured steps of one model by keys of the caller, each with the update plan of its graph.

    What `DecodeRunner` does without its policy: no capture sizes, no padding, no static inputs, no
    choice of run mode. The caller owns the inputs, which have to stay where they were at capture,
    `StaticInputs.views` for instance; recorder and lane, which may be shared; and the model. Graphs
    and plans belong to this object, and go together. For one host thread.

    Args:
        compiled: the model, in a mode that captures whole decode steps.
        recorder: what the model's attention runs through.
        lane: the update lane of the device.
        groups: the parameter groups of the update plans, as for ``UpdatePlan.compile``.

    Raises:
        ConfigError: an argument is of the wrong type, or the mode captures no whole step.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        recorder: Recorder,
        lane: UpdateLane,
        groups: Mapping[str, ParameterGroup] | None = None,
    ) -> None:
        doing = "making captured steps"
        remedy = "make it first, and pass the object"
        for name, value, expected in (
            ("the model", compiled, CompiledModel),
            ("recorder", recorder, Recorder),
            ("lane", lane, UpdateLane),
        ):
            if value is None:
                raise ConfigError(f"{doing}: {name} is None, expected a {expected.__name__}")
            require_instance(doing, name, value, expected, remedy)
        require_instance(doing, "groups", groups, Mapping, "name each ParameterGroup")
        if RunMode.FULL not in compiled.config.decode_run_modes:
            raise ConfigError(
                f"{doing}: the model is compiled in mode {compiled.config.mode.value!r}, which "
                "captures no whole step; compile it in mode 'full'"
            )
        self._compiled = compiled
        self._plans = RecordedPlans(recorder, lane, groups)
        self._pool: object = None

    @property
    def update_plans(self) -> Mapping[GraphKey, UpdatePlan]:
        """The update plan of each captured graph."""
        return MappingProxyType(self._plans.by_key)

    def capture(
        self,
        inputs: Mapping[GraphKey, Mapping[str, Tensor]],
        prepare: Callable[[GraphKey], None],
    ) -> dict[GraphKey, Any]:
        """Capture a graph for each key, the largest first, in one capture session.

        May be called again for further keys, between steps; the graphs share their memory.

        Args:
            inputs: by key the model's arguments, on the device, at the addresses that all steps
                under the key will have.
            prepare: called with each key before the model runs. Must make attention see lengths
                that fit, and the inputs hold padding: warm-up runs write where the inputs say.

        Returns:
            By key what the model returns; written at each replay.

        Raises:
            ConfigError: ``prepare`` is no function.
            RunnerStateError: a key is captured already, by this object or another of the model.
            DeviceError: the device refused a capture.
            AttnUpdateError: what attention recorded cannot be updated.
            Exception: what ``prepare`` or the model raises. After any error the graphs of this call
                are released, and those of earlier calls stay.
        """
        require_prepare("capturing steps", prepare)
        taken = self._compiled.captured_keys.intersection(inputs)
        if taken:
            raise RunnerStateError(
                f"capturing steps: {', '.join(map(str, taken))} captured already; "
                "release them first, or take keys with another variant"
            )
        self._plans.drain()
        outputs: dict[GraphKey, Any] = {}
        try:
            with self._compiled.capture_session(self._pool) as session:
                self._pool = session.pool
                for key in largest_first(inputs):
                    prepare(key)
                    outputs[key] = self._plans.capture(key, partial(self._call, key, inputs[key]))
        except BaseException:
            self._release(inputs)
            raise
        return outputs

    def run(
        self,
        key: GraphKey,
        inputs: Mapping[str, Tensor],
        lengths: Mapping[str, Mapping[str, Lengths]],
    ) -> Any:
        """Replay the graph of a key with the lengths of a step; returns when the work is queued.

        Args:
            key: of a captured graph.
            inputs: the tensors that it was captured on, filled for this step.
            lengths: by parameter group and argument name, for all rows of the graph.

        Returns:
            What the model returns for all rows, in the graph's memory: the next replay overwrites
            it.

        Raises:
            RunnerStateError: the key is not captured here.
            StepParameterError: the lengths do not fit; nothing was launched.
            InputAddressError: an input lies elsewhere than at capture; nothing was launched. When
                it is compared says ``address_check`` of the configuration.
            UpdateError: an update failed.
        """
        if key not in self._plans.by_key:
            raise RunnerStateError(
                f"running a step of {key}: it is not captured here, expected one of "
                f"{', '.join(map(str, self._plans.by_key)) or 'none yet'}; call capture() first"
            )
        return self._plans.run(key, lengths, partial(self._call, key, inputs))

    def release(self, keys: Iterable[GraphKey] | None = None) -> None:
        """Wait for the device and tear graphs down, with their plans and records.

        Args:
            keys: those of the graphs; all of this object by default. One that is not captured here
                is left out.
        """
        own = self._plans.by_key
        self._release([key for key in (own if keys is None else keys) if key in own])

    def _release(self, keys: Collection[GraphKey]) -> None:
        try:
            self._plans.drain()
        finally:
            self._compiled.release(keys)
            for key in keys:
                self._plans.forget(key)

    def _call(self, key: GraphKey, inputs: Mapping[str, Tensor]) -> Any:
        with self._compiled.context.run(RunMode.FULL, key):
            return self._compiled(**inputs)
