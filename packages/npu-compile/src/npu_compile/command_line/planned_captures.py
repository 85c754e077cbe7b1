"""Finds the capture sizes of a model that fit a budget, by capturing them."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any

from npu_compile.command_line.sample_steps import SampleSteps
from npu_compile.configuration.config import CompileMode
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from npu_compile.command_line.named_model import NamedModel
    from npu_compile.command_line.progress import Progress
    from npu_graph_runtime.planning import CaptureBudget, CapturePlan


def plan_captures(
    named: NamedModel,
    budget: CaptureBudget,
    progress: Progress,
    *,
    sizes: tuple[int, ...] | None = None,
) -> dict[str, CapturePlan]:
    """Capture the sizes of a model within a budget of all its graphs, and release the graphs.

    Returns:
        The plans of ``decode`` and, if it is captured, ``prefill``, after the last capture.

    Raises:
        ConfigError: The mode captures nothing, there is no size, or no size fits the budget.
    """
    config = dataclasses.replace(named.config, capture_budget=budget)
    if sizes is not None:
        config = dataclasses.replace(config, capture_sizes=sizes)
    if config.mode is CompileMode.EAGER or not config.capture_sizes:
        raise ConfigError(
            f"planning captures: mode {config.mode.value!r} with {len(config.capture_sizes)} "
            "capture sizes captures nothing; give a configuration with a mode that captures and "
            "capture_sizes"
        )
    steps = SampleSteps(named, config, device=SampleSteps.device_of(named))
    try:
        with warnings.catch_warnings():
            # That sizes are left out is what is asked for here.
            warnings.filterwarnings("ignore", message="capturing the .* graphs")
            steps.capture(
                functools.partial(progress.captured, ""),
                lambda plan: progress.say(f"forecast of {len(plan.sizes)} sizes: {plan.forecast}"),
            )
        runners = {"prefill": steps.prefill_runner, "decode": steps.runner}
        plans = {step: runner.capture_plan for step, runner in runners.items() if runner}
        return {step: plan for step, plan in plans.items() if plan is not None}
    finally:
        steps.close()


def plan_mapping(plan: CapturePlan) -> dict[str, Any]:
    """Return a plan as plain data for JSON."""
    return {
        "sizes": list(plan.sizes),
        "captured": {size: dataclasses.asdict(cost) for size, cost in plan.captured.items()},
        "dropped": dict(plan.dropped),
        "budget": dataclasses.asdict(plan.budget),
        "used": dataclasses.asdict(plan.used),
    }
