"""The pass manager, called step by step as vLLM 0.23 and vllm-ascend 0.23.0 call theirs.

The engine itself is not installed here. These tests repeat the few lines of it that use a pass
manager. `engines/vllm/fusions.py` runs the manager in the engine.
"""

from __future__ import annotations

import copy
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.custom_graph_pass import CustomGraphPass

import fx_passes
from fx_passes.inductor import PostGradPasses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PASS_KEY = "graph_fusion_manager"
aten = torch.ops.aten


@dataclass(frozen=True)
class Range:
    """`vllm.config.utils.Range`: both ends are in it."""

    start: int
    end: int


class EngineModule(ModuleType):
    """`vllm.compilation.passes.inductor_pass`: the range that is compiled for at the moment."""

    def __init__(self) -> None:
        super().__init__("vllm.compilation.passes.inductor_pass")
        self.context: SimpleNamespace | None = None

    def get_pass_context(self) -> SimpleNamespace:
        assert self.context is not None
        return self.context

    @contextmanager
    def pass_context(self, compile_range: Range) -> Iterator[None]:
        previous, self.context = self.context, SimpleNamespace(compile_range=compile_range)
        try:
            yield
        finally:
            self.context = previous


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineModule:
    module = EngineModule()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


class EnginePass(CustomGraphPass):
    """`VllmInductorPass`: a key of its own, and the ranges it is for."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most = most
        self.given: list[object] = []

    def uuid(self) -> object:
        return f"{type(self).__name__}-{self.most}"

    def is_applicable_for_range(self, compile_range: Range) -> bool:
        return compile_range.end <= self.most

    def __call__(self, graph: Any) -> None:
        # The engine's own passes for sequence parallelism read the graph off a module.
        assert isinstance(graph.graph, fx.Graph)
        self.given.append(graph)
        for node in graph.graph.find_nodes(op="call_function", target=aten.abs.default):
            node.target = aten.relu.default


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": x.neg().neg()}


def _rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, fx.Node]:
    return {"y": build.call("aten::abs", match.bound["x"], val=match.value("y"))}


RULE = fx_passes.Rule(name="double_negation", patterns=(_pattern,), rewrite=_rewrite)
PIPELINE = fx_passes.Pipeline(
    passes=(fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=(RULE,)))
)


def configured(manager: Any, *own: EnginePass, **additional: object) -> dict[str, Any]:
    """Configure as `VllmBackend.configure_post_pass`; returns the options passed to a compiler."""
    manager.configure(SimpleNamespace(additional_config=additional))
    for each in own:
        manager.add(each)
    return {PASS_KEY: manager}


def compiled(compiler_config: dict[str, Any], function: Callable[[Tensor], Tensor]) -> Any:
    """Compile as `fusion_pass_compile` does: run the graph that the manager returns."""

    def compile_inner(graph: Any, example_inputs: object) -> Any:
        del example_inputs
        return compiler_config[PASS_KEY](graph)

    torch.compiler.reset()
    return torch.compile(function, backend=aot_autograd(fw_compiler=compile_inner))


def negate_twice(x: Tensor) -> Tensor:
    return x.neg().neg()


X = torch.tensor([-1.0, 0.0, 2.0])


def test_the_class_that_the_platform_names_needs_no_argument() -> None:
    made: Any = sys.modules["fx_passes.inductor"].PostGradPasses()

    compiler_config = configured(made)

    assert compiler_config[PASS_KEY].pipeline.names()


def test_the_result_is_what_the_engine_runs(engine: EngineModule) -> None:
    manager = PostGradPasses(PIPELINE)
    run = compiled(configured(manager), negate_twice)

    with engine.pass_context(Range(1, 8)), torch.no_grad():
        torch.testing.assert_close(run(X), X.abs())

    assert manager.report.match_counts() == {"double_negation": 1}


def test_the_engines_pass_gets_the_module_that_the_engine_gave(engine: EngineModule) -> None:
    own = EnginePass()
    run = compiled(configured(PostGradPasses(PIPELINE), own), negate_twice)

    with engine.pass_context(Range(1, 8)), torch.no_grad():
        torch.testing.assert_close(run(X), X.relu())

    assert [isinstance(each, fx.GraphModule) for each in own.given] == [True]


def test_the_engines_pass_runs_only_in_its_range(engine: EngineModule) -> None:
    own = EnginePass(most=4)
    manager = PostGradPasses(PIPELINE)
    run = compiled(configured(manager, own), negate_twice)

    with engine.pass_context(Range(1, 8)), torch.no_grad():
        torch.testing.assert_close(run(X), X.abs())

    assert own.given == []
    assert "not for this range of sizes" in str(manager.report)


def test_two_passes_of_one_class_are_both_run(engine: EngineModule) -> None:
    own = (EnginePass(), EnginePass(), EnginePass())
    run = compiled(configured(PostGradPasses(PIPELINE), *own), negate_twice)

    with engine.pass_context(Range(1, 8)), torch.no_grad():
        run(X)

    assert [len(each.given) for each in own] == [1, 1, 1]


@pytest.mark.parametrize(("compile_range", "matches"), [(Range(1, 8), 1), (Range(9, 16), 0)])
def test_ranges_come_from_the_engines_pass_context(
    engine: EngineModule, compile_range: Range, matches: int
) -> None:
    manager = PostGradPasses(PIPELINE)
    run = compiled(
        configured(manager, fx_passes={"ranges": {"double_negation": (1, 8)}}), negate_twice
    )

    with engine.pass_context(compile_range), torch.no_grad():
        run(X)

    assert len(manager.report.matches("double_negation")) == matches


def test_outside_of_a_compilation_a_rule_with_a_range_does_not_run(engine: EngineModule) -> None:
    manager = PostGradPasses(PIPELINE)
    run = compiled(
        configured(manager, fx_passes={"ranges": {"double_negation": (1, 8)}}), negate_twice
    )

    with torch.no_grad():
        run(X)

    assert engine.context is None
    assert manager.report.matches() == ()


def test_the_report_holds_every_graph_of_a_model(engine: EngineModule) -> None:
    manager = PostGradPasses(PIPELINE)
    compiler_config = configured(manager)

    for size in (8, 16):
        run = compiled(compiler_config, negate_twice)
        with engine.pass_context(Range(size, size)), torch.no_grad():
            run(X)

    assert len(manager.results) == 2
    assert manager.report.match_counts() == {"double_negation": 2}


def test_the_engine_copies_its_configuration_deeply(engine: EngineModule) -> None:
    """`VllmBackend` copies `inductor_compile_config`, where a user's pass may be ours."""
    del engine
    manager = PostGradPasses()

    copied = copy.deepcopy({PASS_KEY: manager})[PASS_KEY]

    assert copied.uuid() == manager.uuid()
