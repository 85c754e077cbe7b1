"""Captures, measures and releases the graph of one key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attn_update import StepParameters
from npu_graph_runtime import RunMode
from npu_graph_runtime.planning import RunModeCandidate

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_update import Lengths, UpdatePlan
    from npu_compile.runners.padded_steps import PaddedSteps
    from npu_compile.runners.recorded_plans import RecordedPlans
    from npu_graph_runtime import GraphKey


class StepCapture:
    """Captures steps of padding, key by key, with their update plans in mode ``FULL``.

    Creating it waits until the thread of the update lane has finished its queued work.

    Args:
        prepare: called with the tokens of a key before the model runs under it.

    Raises:
        UpdateError: An update of an earlier step failed in the lane's thread.
    """

    def __init__(
        self, steps: PaddedSteps, plans: RecordedPlans, prepare: Callable[[int], object]
    ) -> None:
        plans.drain()
        self._steps = steps
        self._plans = plans
        self._prepare = prepare

    def prepare(self, key: GraphKey) -> None:
        """Set the attention lengths of a step of padding, and make its metadata."""
        self._plans.prepare(key, self._prepare(key.num_tokens))

    def capture(self, key: GraphKey, mode: RunMode) -> None:
        """Capture the graph of a key and, in mode ``FULL``, keep its update plan.

        Raises:
            OutputError: An output does not have one row for each row, or each sequence.
            AttnUpdateError: The recorded layers differ from those of earlier captures.
            DeviceError: The device rejected the capture.
        """
        capture = partial(self._steps.capture, key, mode)
        if mode is RunMode.FULL:
            self._plans.capture(key, capture)
        else:
            capture()

    def release(self, key: GraphKey) -> None:
        """Release the graph of a key, its plan and its records, if there are any."""
        self._steps.compiled.release([key])
        self._plans.forget(key)

    def candidate(self, key: GraphKey, mode: RunMode) -> RunModeCandidate:
        """Return a candidate that runs steps of padding under a key, for measurement."""
        step = self._steps.padding_step(key, mode)
        if mode is RunMode.FULL:
            return self._updated_candidate(key, step)

        def run() -> Any:
            # In serving each step that no update reaches gets its lengths.
            self.prepare(key)
            return step()

        if mode is RunMode.EAGER:
            return RunModeCandidate(step=run)
        return RunModeCandidate(
            step=run,
            capture=lambda: self.capture(key, mode),
            release=lambda: self.release(key),
        )

    def _updated_candidate(self, key: GraphKey, replay: Callable[[], Any]) -> RunModeCandidate:
        lane = self._plans.lane
        assert lane is not None  # noqa: S101
        steps: list[tuple[UpdatePlan, StepParameters]] = []

        def capture() -> None:
            self._plans.record(key, partial(self._steps.capture, key, RunMode.FULL))
            # A lane skips what the step before has updated already, so two plans of the same
            # lengths take turns: each then updates everything, as steps of serving do.
            for _ in range(2):
                plan = self._plans.compile(key)
                steps.append((plan, _captured_parameters(plan)))

        def step() -> Any:
            steps.reverse()
            return lane.run(*steps[0], self._plans.replaying(key, None, replay))

        def release() -> None:
            try:
                lane.drain()
            finally:
                self.release(key)

        return RunModeCandidate(step=step, capture=capture, release=release)


def _captured_parameters(plan: UpdatePlan) -> StepParameters:
    """Return the step parameters that the launches of a plan were captured with."""
    groups: dict[str, dict[str, Lengths]] = {}
    for update in plan.updates:
        group = plan.group_of(update.slot)
        names = plan.groups[group].arguments
        groups.setdefault(group, {name: update.launch[name] for name in names})
    return StepParameters(key=plan.key, groups=groups)
