"""Explains what a compilation does to a model, without running or capturing anything."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from fx_passes.reports import CostObserver, PageObserver
from npu_compile.compilation.dynamo_call import (
    behind_dynamo,
    mark_dynamic_dims,
    name_of,
    signature_with,
)
from npu_compile.compilation.graph_compiler import GraphCompiler
from npu_compile.configuration.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_compile.explaining.explanation_page import introduction
from npu_compile.explaining.launched_operators import RAISING, LaunchObserver, RaisingObserver
from npu_compile.explaining.layers import fold_layers
from npu_compile.torch_internals import BackendCompilerFailed, Unsupported
from npu_graph_runtime import RunMode
from piecewise_split import run_uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from fx_passes import Pipeline, Report
    from npu_compile.compilation.graph_compiler import CompilationReport
    from npu_compile.explaining.launched_operators import LaunchedOperator
    from npu_compile.explaining.layers import LayerGroup


_NUMBER = re.compile(r"(?<=\w)_\d+`")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What a configuration does to a model. ``str()`` returns readable text.

    Attributes:
        report: fusions with near misses, and the split plan.
        launches_before: operators that one step launches before fusion, not counting views, sizes
            and elements of tuples; ``None`` if no fusion rule ran.
        launches_after: the same after fusion.
        operators_before: the operators launched before fusion, including the opaque operators of
            attention, which the numbers do not count; ``None`` if no fusion rule ran.
        operators_after: the same after fusion.
        raised: for each kind of place in a plain torch model, how many were raised, as text.
        modules: maps the name of each node to the path of the module it came from.
        fusions_page: the part of :meth:`html` about fusions.
    """

    name: str
    config: CompileConfig
    report: CompilationReport
    launches_before: int | None
    launches_after: int | None
    operators_before: tuple[LaunchedOperator, ...] | None = dataclasses.field(repr=False)
    operators_after: tuple[LaunchedOperator, ...] | None = dataclasses.field(repr=False)
    raised: tuple[str, ...] = ()
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    fusions_page: PageObserver = dataclasses.field(repr=False, compare=False)

    @property
    def layers(self) -> tuple[LayerGroup, ...]:
        """Layers of the model in order, equal neighbours merged; empty if nothing is fused."""
        return fold_layers(self.operators_before or (), self.operators_after or ())

    def num_device_graphs(self) -> dict[str, int | None]:
        """Return the number of captured device graphs, for ``decode`` and for ``prefill``.

        One per capture size and piece between splitting ops, or one per size if the whole model is
        captured. ``None`` in mode ``breakable``, where it depends on the model's marks. In mode
        ``measured`` it is the largest number that can be chosen.
        """
        sizes = {
            "decode": (self.config.decode_run_modes, self.config.capture_sizes),
            "prefill": (self.config.prefill_run_modes, self.config.prefill_capture_sizes),
        }
        counts = {
            step: [self._num_graphs(mode, len(each)) for mode in modes]
            for step, (modes, each) in sizes.items()
        }
        return {
            step: None if None in each else max(filter(None, each), default=0)
            for step, each in counts.items()
        }

    def to_mapping(self) -> dict[str, Any]:
        """Return the explanation as plain data for JSON."""
        fusions, plan = self.report.fusions, self.report.plan
        return {
            "name": self.name,
            "config": self.config.to_mapping(),
            "launches": {"before": self.launches_before, "after": self.launches_after},
            "raised": list(self.raised),
            "layers": [group.to_mapping() for group in self.layers],
            "device_graphs": self.num_device_graphs(),
            "fusions": fusions.to_dict() if fusions else None,
            "plan": json.loads(plan.to_json()) if plan else None,
        }

    def html(self) -> str:
        """Return the explanation as one self-contained page without scripts."""
        title = f"{self.name}, mode {self.config.mode.value}"
        return self.fusions_page.html(
            introduction(title, [*self._summary()], self.report.plan, self.layers)
        )

    def __str__(self) -> str:
        lines = [f"{self.name}, mode {self.config.mode.value}", *self._summary(), *self._fusions()]
        if self.report.plan is not None:
            lines += ["", str(self.report.plan)]
        return "\n".join(lines)

    def _num_graphs(self, mode: RunMode, num_sizes: int) -> int | None:
        if mode is RunMode.EAGER or not num_sizes:
            return 0
        if mode is RunMode.FULL:
            return num_sizes
        return num_sizes * self.report.num_captured_pieces if self.report.plan else None

    def _summary(self) -> Iterator[str]:
        if self.launches_before is None:
            yield "nothing is fused: the configuration says fuse=False or fusions='none'"
        else:
            yield (
                f"operators launched by a step: {self.launches_after}, before fusion "
                f"{self.launches_before}"
            )
        yield from self.raised
        for step, count in self.num_device_graphs().items():
            shown = "as many as the marks of the model make" if count is None else str(count)
            if self.config.mode is CompileMode.MEASURED:
                names = ", ".join(mode.value for mode in self.config.modes)
                shown = f"at most {shown}; each size in the fastest of {names}, when captured"
            yield f"device graphs for {step}: {shown}"
        if self.config.mode is CompileMode.TORCHAIR:
            yield f"compiled further by {self.config.inner_compiler.value}, which is not shown here"

    def _fusions(self) -> Iterator[str]:
        report = self.report.fusions
        if report is None:
            return
        for group in self.layers if len(self.layers) > 1 else ():
            yield f"  {group}"
        counts: Counter[tuple[str, str]] = Counter()
        for each in report.passes:
            did = "raised" if each.name == RAISING else "fused"
            for rule_report in each.rules:
                counts[did, rule_report.rule] += len(rule_report.matches)
        for (did, rule), count in counts.items():
            if count:
                yield f"  {did} by {rule}: {count}"
        yield from self._near_misses(report)
        waiting = {each.rule: each.waiting_for for each in report.rule_reports()}
        for rule, operators in waiting.items():
            if operators:
                yield f"  not tried: {rule}; this process has no operator {', '.join(operators)}"

    def _near_misses(self, report: Report) -> Iterator[str]:
        # Each place once, however many rounds looked at it.
        misses = {
            (each.rule, miss): None for each in report.rule_reports() for miss in each.near_misses
        }
        nearly: dict[tuple[str, str], list[str]] = {}
        for rule, miss in misses:
            # Layers differ in the numbers of their nodes.
            reason = _NUMBER.sub("`", miss.reason)
            nearly.setdefault((rule, reason), []).append(self.modules.get(miss.anchor, ""))
        for (rule, reason), places in nearly.items():
            first = f", first in {places[0]}" if places[0] else ""
            yield f"  near miss of {rule}, in {len(places)} places{first}: {reason}"


def explain(
    model: Callable[..., Any],
    inputs: Mapping[str, Any],
    config: CompileConfig | Mapping[str, Any] | None = None,
    *,
    dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None,
    pipeline: Pipeline | None = None,
) -> Explanation:
    """Trace, fuse and split a model as `compile_model` would, and report what was done.

    Nothing is run or captured, so you need no device, and tensors may be on ``meta``. NPU fusions
    are tried only if the process has their operators, that is, if torch_npu is imported. With
    cann-sim you can import it without an NPU.

    Args:
        model: as for `compile_model`.
        inputs: example arguments by name. Sizes that change between calls should be above 1.
        config: as for `compile_model`.
        dynamic_arg_dims: as for `compile_model`.
        pipeline: as for `compile_model`.

    Raises:
        ConfigError: The configuration is invalid, or Dynamo does not trace the model as one graph.
        SplittingOpError: A splitting op of the configuration is not in the model.
    """
    config = CompileConfig.of(config)
    dims = dict(dynamic_arg_dims or {})
    signature = signature_with(model, dims)
    page, costs, operators = PageObserver(), CostObserver(), LaunchObserver()
    raising = RaisingObserver()
    prepare = run_uncompiled if config.splits else None
    compiler = GraphCompiler(config, prepare, (page, costs, operators, raising), pipeline=pipeline)

    def backend(
        graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        compiler(graph_module, example_inputs)
        return _stop

    name = name_of(model)
    try:
        mark_dynamic_dims(signature.bind(**inputs).arguments, dims)
    except TypeError as error:
        raise ConfigError(f"explaining {name}: {error}; its arguments are {signature}") from error
    try:
        behind_dynamo(model, backend)(**inputs)
    except _GraphCompiledError:
        pass
    except BackendCompilerFailed as error:
        raise error.inner_exception from error
    except Unsupported as error:
        raise ConfigError(
            f"explaining {name}: it is not one graph for Dynamo ({str(error).splitlines()[0]}); "
            "put what Dynamo must not look into behind an opaque operator (torch.library)"
        ) from error
    if not compiler.reports:
        raise ConfigError(
            f"explaining {name}: Dynamo handed over no graph of it; see that it is not switched "
            "off (TORCHDYNAMO_DISABLE, torch.compiler.set_stance)"
        )
    return Explanation(
        name=name,
        config=config,
        report=compiler.reports[0],
        launches_before=costs.before.launches if costs.before else None,
        launches_after=costs.after.launches if costs.after else None,
        operators_before=operators.before,
        operators_after=operators.after,
        raised=tuple(raising.lines()),
        modules=operators.modules,
        fusions_page=page,
    )


class _GraphCompiledError(Exception):
    """Ends the call of a model after its graph is compiled, before any of it runs."""


def _stop(*args: object) -> NoReturn:
    del args
    raise _GraphCompiledError
