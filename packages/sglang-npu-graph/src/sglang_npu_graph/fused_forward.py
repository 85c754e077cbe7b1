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

Key = tuple[str, int, int]

COVERED = frozenset({"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"})
"""The models whose kernels beside torch's dispatcher are known: see `kernel_operators`."""


class Fusions:
    """Fuses the decode steps of one process.

    Args:
        settings: Which rules run, for `fx_passes.PassSelection.read`.

    Attributes:
        pipeline: The rules.
        calls: What was traced, by the model's name, the number of tokens and the model: graphs that
            were captured of it read tensors that it keeps alive.
        reports: What the rules did, in the order of the captures.

    Raises:
        OptionsError: A setting, pass or rule is not there.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        try:
            selection = PassSelection.read(settings)
            self.pipeline = selection.select(default_npu_pipeline())
        except PipelineError as error:
            raise OptionsError(f"reading 'fusions' of {VARIABLE}: {error}") from error
        self.calls: dict[Key, TracedCall] = {}
        self.reports: list[Report] = []
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
            if reason is None:
                yield FusedForward(forward, self, (name, num_tokens, id(model)))
                return
            _LOGGER.warning("sglang-npu-graph leaves %s unfused: %s", name, reason)
            yield forward

    def fuse(self, key: Key, call: TracedCall) -> None:
        """Rewrite a traced call in place.

        Raises:
            RuleError: A required rule matched nothing; the message has its near misses.
        """
        report = self.pipeline.run(call.graph_module).report
        if not self.reports:
            # The largest size is captured first.
            report.require(*self._require)
        self.reports.append(report)
        self.calls[key] = call
        told = (*key[:2], report.summary())
        _LOGGER.info("sglang-npu-graph: hook took effect: %s of %d tokens is fused: %s", *told)
        _LOGGER.debug("%s", report)


class FusedForward:
    """Called like the model's forward, with the same static buffers each time.

    Args:
        forward: The model's; returns a dataclass whose fields hold the tensors.
        fusions: Rewrites the graph.
        key: As in `Fusions.calls`.
    """

    def __init__(self, forward: Callable[..., Any], fusions: Fusions, key: Key) -> None:
        # The engine asks what the model's forward takes.
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._fusions = fusions
        self._key = key
        self._given: tuple[object, ...] = ()
        self._call: TracedCall | None = None
        self._output: Any = None
        self._names: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step; the first run of a set of static buffers is the model's own."""
        given = (*args, *kwargs.values())
        if len(given) != len(self._given) or not all(map(_is_same, self._given, given)):
            self._given = given
            return self._trace(*args, **kwargs)
        if self._call is None:
            return self._forward(*args, **kwargs)
        return self._filled(self._call.run())

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        def step() -> list[torch.Tensor]:
            self._output = self._forward(*args, **kwargs)
            found = _tensors(self._output)
            self._names = list(found)
            return list(found.values())

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


def _tensors(output: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a step's output by the names of their fields."""
    found = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    nested = [name for name, value in found.items() if isinstance(value, (list, tuple, dict))]
    if nested:
        raise TypeError(f"the step returned tensors, or others, in containers: {nested}")
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _is_same(first: object, second: object) -> bool:
    """Return whether two arguments are one object, or tensors that show the same memory."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.data_ptr() == second.data_ptr()
    return first is second
