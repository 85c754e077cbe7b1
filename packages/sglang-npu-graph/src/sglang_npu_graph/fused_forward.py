"""A model's forward of one size, traced at its first run and fused by fx_passes from then on.

Nothing of the engine is imported here.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fx_passes import (
    PassSelection,
    PipelineError,
    TraceError,
    default_npu_pipeline,
    trace_call,
)
from sglang_npu_graph.errors import OptionsError
from sglang_npu_graph.options import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fx_passes import Report, TracedCall

_LOGGER = logging.getLogger("sglang.npu_graph")

COVERED = frozenset({"Qwen3ForCausalLM"})
"""The models whose kernels beside torch's dispatcher are known: see `kernel_operators`."""


class Fusions:
    """Fuses the decode steps of one process.

    Args:
        settings: Which rules run, for `fx_passes.PassSelection.read`.

    Attributes:
        pipeline: The rules.
        reports: What they did, by model and number of tokens.

    Raises:
        OptionsError: A setting, pass or rule is not there.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        try:
            selection = PassSelection.read(settings)
            self.pipeline = selection.select(default_npu_pipeline())
        except PipelineError as error:
            raise OptionsError(f"reading 'fusions' of {VARIABLE}: {error}") from error
        self.reports: dict[tuple[str, int], Report] = {}
        self._require = selection.require

    @contextmanager
    def __call__(
        self,
        original: Callable[..., Any],
        model: torch.nn.Module,
        enable_compile: bool,
        num_tokens: int,
        tp_group: Any,
    ) -> Iterator[Callable[..., Any]]:
        """Stand around the engine's choice of the forward that it captures at one size."""
        with original(model, enable_compile, num_tokens, tp_group) as forward:
            name = type(model).__name__
            reason = None
            if enable_compile:
                reason = "it is compiled by torch.compile"
            elif name not in COVERED:
                reason = "this model was not tried"
            elif tp_group.world_size > 1:
                reason = "it runs on several ranks"
            if reason is None:
                yield FusedForward(forward, self, (name, num_tokens))
                return
            _LOGGER.warning("sglang-npu-graph leaves %s unfused: %s", name, reason)
            yield forward

    def fuse(self, key: tuple[str, int], call: TracedCall) -> None:
        """Rewrite a traced call in place.

        Raises:
            ConditionError: A required rule matched nothing; the message has its near misses.
        """
        report = self.pipeline.run(call.graph_module).report
        if not self.reports:
            # The largest size is captured first.
            report.require(*self._require)
        self.reports[key] = report
        told = (*key, report.summary())
        _LOGGER.info("sglang-npu-graph: hook took effect: %s of %d tokens is fused: %s", *told)
        _LOGGER.debug("%s", report)


class FusedForward:
    """Called like the model's forward, with the same static buffers each time.

    Args:
        forward: The model's; returns a dataclass whose fields hold the tensors.
        fusions: Rewrites the graph.
        key: The model and the number of tokens.
    """

    def __init__(self, forward: Callable[..., Any], fusions: Fusions, key: tuple[str, int]) -> None:
        # The engine asks what the model's forward takes.
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._fusions = fusions
        self._key = key
        self._read: tuple[object, ...] | None = None
        self._call: TracedCall | None = None
        self._output: Any = None
        self._names: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step; the first run of a set of static buffers is the model's own."""
        read = tuple(map(_identity, (*args, *kwargs.values())))
        if self._read != read:
            self._read = read
            return self._trace(*args, **kwargs)
        if self._call is None:
            return self._forward(*args, **kwargs)
        return self._filled(self._call.run())

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        def step() -> list[torch.Tensor]:
            self._output = output = self._forward(*args, **kwargs)
            self._names = [
                field.name
                for field in dataclasses.fields(output)
                if isinstance(getattr(output, field.name), torch.Tensor)
            ]
            return [getattr(output, name) for name in self._names]

        self._call = None
        try:
            call = trace_call(step, name=f"{self._key[0]} of {self._key[1]} tokens")
        except TraceError as error:
            _LOGGER.warning("sglang-npu-graph leaves %s unfused: %s", self._key[0], error)
            return self._forward(*args, **kwargs)
        self._fusions.fuse(self._key, call)
        self._call, output = call, self._filled(call.outputs)
        # The tensors of this run are not kept.
        self._output = self._filled([None] * len(self._names))
        return output

    def _filled(self, tensors: Sequence[object]) -> Any:
        """Return the output of a step with these tensors."""
        return dataclasses.replace(self._output, **dict(zip(self._names, tensors, strict=True)))


def _identity(argument: object) -> object:
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else id(argument)
