"""Several decode steps as one: the model again and again, each time on what the last one gave."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch

from npu_compile.errors import InputError, OutputError
from npu_compile.runners.recorded_plans import RecordedPlans
from npu_graph_runtime import runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from torch import Tensor

    from attn_update import Lengths, ParameterGroup, Recorder, UpdateLane
    from npu_compile.compilation.compiled_model import CompiledModel
    from npu_graph_runtime import GraphKey

_Lengths = dict[str, dict[str, "Lengths"]]


class Advance(Protocol):
    """Makes the inputs of the next decode step on the device, from what a step gave."""

    def __call__(
        self, step: int, inputs: Mapping[str, Tensor], output: Any, /
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return what the step is to give, and inputs of the next one.

        Runs on the current stream and is captured with the model, so it must not read a value on
        the host.

        Args:
            step: number of the step, from 0.
            inputs: of the step, padded, by name: the model's arguments and all else that was
                declared.
            output: of the model.

        Returns:
            A tensor ``[rows, ...]``, such as the tokens sampled, and the inputs that change, each
            of the shape, dtype and device of the one before. What the last step returns of these is
            not used.
        """


class RepeatedSteps:
    """Runs a model several times as one step, which is captured and replayed as one.

    Args:
        growing: names of the lengths that are larger by 1 at each step, but where they are 0.
        recorder: what attention runs through; ``None`` where nothing is ever recorded.
        set_lengths: makes attention see the lengths of one step.

    Attributes:
        call: what runs all steps and returns their results, ``[rows, steps, ...]``.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        *,
        steps: int,
        advance: Advance,
        growing: Collection[str],
        recorder: Recorder | None,
        set_lengths: Callable[[Mapping[str, Mapping[str, Lengths]]], None] | None,
    ) -> None:
        self.call = compiled.capture_around(self._run, name=f"{steps} decode steps")
        self._compiled = compiled
        self._steps = steps
        self._advance = advance
        self._growing = frozenset(growing)
        self._recorder = recorder
        self._set_lengths = set_lengths
        self._own = compiled.argument_names
        self._of_steps: tuple[_Lengths, ...] = ()
        self._show = runs_eagerly(compiled.context)(self._show_lengths)

    def plans(
        self, lane: UpdateLane | None, groups: Mapping[str, ParameterGroup] | None
    ) -> RecordedPlans:
        """Return the update plans, whose groups and lengths are those of each step."""
        by_step = groups and {
            f"{_name(step)}/{name}": group
            for step in range(self._steps)
            for name, group in groups.items()
        }
        return _RepeatedPlans(self, self._compiled, self._recorder, lane, by_step)

    def take_lengths(self, lengths: Mapping[str, Mapping[str, Lengths]]) -> None:
        """Keep the lengths of the first step for the call that follows, which shows them."""
        self._of_steps = self.lengths_of_steps(lengths)

    def forget_lengths(self) -> None:
        """Let attention see what a capture shows it."""
        self._of_steps = ()

    def lengths_of_steps(
        self, lengths: Mapping[str, Mapping[str, Lengths]]
    ) -> tuple[_Lengths, ...]:
        """Return the lengths of each step, given those of the first.

        Raises:
            InputError: none of them is named like one that grows.
        """
        missing = self._growing.difference(*lengths.values()) if lengths else frozenset[str]()
        if missing:
            raise InputError(
                f"running {self._steps} decode steps: growing names {sorted(missing)}, which the "
                f"lengths of {', '.join(map(repr, lengths))} do not give"
            )
        first: Mapping[str, Mapping[str, Any]] = {
            group: {
                name: torch.as_tensor(value).tolist() if name in self._growing else value
                for name, value in given.items()
            }
            for group, given in lengths.items()
        }
        return tuple(
            {
                group: {
                    # A row of padding has none.
                    name: [each + step if each else 0 for each in value]
                    if name in self._growing
                    else value
                    for name, value in given.items()
                }
                for group, given in first.items()
            }
            for step in range(self._steps)
        )

    def _show_lengths(self, step: int) -> None:
        if self._of_steps and self._set_lengths is not None:
            self._set_lengths(self._of_steps[step])

    @torch.no_grad()
    def _run(self, **inputs: Tensor) -> Tensor:
        results: list[Tensor] = []
        for step in range(self._steps):
            self._show(step)
            scope = nullcontext() if self._recorder is None else self._recorder.scope(_name(step))
            with scope:
                given = {name: inputs[name] for name in self._own if name in inputs}
                output = self._compiled.run_inside(**given)
            result, following = self._advance(step, inputs, output)
            results.append(result)
            if step + 1 < self._steps:
                _require_alike(inputs, following, step)
                inputs = {**inputs, **following}
        return torch.stack(results, dim=1)


class _RepeatedPlans(RecordedPlans):
    """Update plans of graphs that hold several steps; takes the lengths of the first."""

    def __init__(self, repeated: RepeatedSteps, *given: Any) -> None:
        super().__init__(*given)
        self._repeated = repeated

    def drain(self) -> None:
        """Make ready for captures: they are shown the lengths of padding, not those of a step."""
        super().drain()
        self._repeated.forget_lengths()

    def run(
        self,
        key: GraphKey,
        lengths: Mapping[str, Mapping[str, Lengths]],
        replay: Callable[[], Any],
    ) -> Any:
        """Replay a graph with the lengths of all of its steps."""
        of_steps = self._repeated.lengths_of_steps(lengths)
        named = {
            f"{_name(step)}/{group}": given
            for step, of_step in enumerate(of_steps)
            for group, given in of_step.items()
        }
        return super().run(key, named, replay)


def _name(step: int) -> str:
    return f"step.{step}"


def _require_alike(
    inputs: Mapping[str, Tensor], following: Mapping[str, Tensor], step: int
) -> None:
    for name, value in following.items():
        before = inputs.get(name)
        if before is None or value.shape != before.shape or value.dtype is not before.dtype:
            expected = "one of the inputs" if before is None else f"{before.dtype} {before.shape}"
            raise OutputError(
                f"making the inputs of decode step {step + 1}: `{name}` is {value.dtype} of shape "
                f"{tuple(value.shape)}, expected {expected}"
            )
