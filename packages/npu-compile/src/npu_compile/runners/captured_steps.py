"""Captured graphs with the update plans of their attention, by keys of the caller."""

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
from npu_compile.runners.step_producers import require_producers
from npu_graph_runtime import GraphKey, RunMode, largest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from torch import Tensor

    from attn_update import Lengths, ParameterGroup, UpdatePlan
    from npu_compile.runners.step_producers import StepProducers


class CapturedSteps:
    """Captures and replays steps of a model under your own keys, with attention updates.

    Use this instead of `DecodeRunner` if your engine decides about capture sizes, padding, static
    inputs and run modes itself. You own the inputs, which must stay at the addresses of the capture
    (for instance `StaticInputs.views`), the model, and the recorder and the lane, which may be
    shared.
    This object owns the graphs and their update plans. Use it from one host thread.

    Args:
        compiled: the model, in a mode that captures whole decode steps.
        recorder: the recorder that the model's attention uses.
        lane: the update lane of the device.
        groups: the parameter groups of the update plans, as for ``UpdatePlan.compile``.
        producers: makes metadata of attention on the device. The size of a step is that of its
            key, which must have `num_sequences`.

    Raises:
        ConfigError: An argument has the wrong type, or the mode does not capture whole steps.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        recorder: Recorder,
        lane: UpdateLane,
        groups: Mapping[str, ParameterGroup] | None = None,
        producers: StepProducers | None = None,
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
        require_producers(doing, producers)
        self._plans = RecordedPlans(compiled, recorder, lane, groups, producers)
        self._pool: object = None

    @property
    def update_plans(self) -> Mapping[GraphKey, UpdatePlan]:
        """The update plan of each captured graph."""
        return MappingProxyType(self._plans.by_key)

    def capture(
        self,
        inputs: Mapping[GraphKey, Mapping[str, Tensor]],
        prepare: Callable[[GraphKey], object],
    ) -> dict[GraphKey, Any]:
        """Capture a graph for each key, the largest first, in one capture session.

        You can call it again for more keys, between steps. The graphs share their memory.

        Args:
            inputs: the model's arguments for each key, on the device, at the addresses that all
                steps with this key will use.
            prepare: called with each key before the model runs. It must set lengths for attention
                that fit, and fill the inputs with padding, because warm-up runs write where the
                inputs say. With `producers` it returns the lengths by parameter group.

        Returns:
            The outputs of the model for each key; each replay overwrites them.

        Raises:
            ConfigError: ``prepare`` is not callable.
            RunnerStateError: A key is already captured, by this object or another one of the model.
            DeviceError: The device rejected a capture.
            AttnUpdateError: The recorded attention cannot be updated.
            Exception: Any error of ``prepare`` or the model. After an error the graphs of this call
                are released; graphs of earlier calls stay.
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
                    self._plans.prepare(key, prepare(key))
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
        """Replay the graph of a key with the lengths of a step. Returns when the work is queued.

        Args:
            key: the key of a captured graph.
            inputs: the tensors passed to :meth:`capture`, filled for this step.
            lengths: values by parameter group and argument name, for all rows of the graph.

        Returns:
            The outputs of the model for all rows, in the graph's memory. The next replay overwrites
            them.

        Raises:
            RunnerStateError: The key is not captured here.
            StepParameterError: The lengths do not fit; nothing was launched.
            InputAddressError: An input is at another address than at capture; nothing was launched.
                The option ``address_check`` says when addresses are compared.
            UpdateError: An update failed.
        """
        if key not in self._plans.by_key:
            raise RunnerStateError(
                f"running a step of {key}: it is not captured here, expected one of "
                f"{', '.join(map(str, self._plans.by_key)) or 'none yet'}; call capture() first"
            )
        return self._plans.run(key, lengths, partial(self._call, key, inputs))

    def release(self, keys: Iterable[GraphKey] | None = None) -> None:
        """Wait for the device and release graphs with their plans and records.

        Args:
            keys: the keys to release; by default all of this object. Keys that are not captured
                here are ignored.
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
