"""Rewrites that are wrong: refused when they are built, or by `VerifyObserver`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule, Node

    Rewrite = Callable[[fx_passes.Match, fx_passes.GraphBuilder], dict[str, Node]]

aten = torch.ops.aten


def _pattern(x: Tensor) -> dict[str, Tensor]:
    return {"y": aten.neg(aten.neg(x))}


def _sum(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    total = aten.add(x, y)
    return {"total": total, "out": aten.exp(total)}


def module_of() -> GraphModule:
    return capture_graph(lambda x: x.neg().neg() * 2, random_tensors((3, 4), device="cpu"))


def run(rewrite: Rewrite, *, execute: bool = False) -> fx_passes.PipelineResult:
    rule = fx_passes.Rule(name="bad_rule", patterns=(_pattern,), rewrite=rewrite)
    rules = fx_passes.RulePass(name="rules", rules=(rule,), repeats=False)
    observer = fx_passes.VerifyObserver(execute=execute)
    passes = (fx_passes.NormalizePass(), rules)
    return fx_passes.Pipeline(passes=passes, observers=(observer,)).run(module_of())


def _uses_what_it_replaces(
    match: fx_passes.Match, build: fx_passes.GraphBuilder
) -> dict[str, Node]:
    return {"y": build.call("aten::abs", match.outputs["y"])}


def _uses_what_becomes_its_element(
    match: fx_passes.Match, build: fx_passes.GraphBuilder
) -> dict[str, Node]:
    parts = build.call("aten::split.Tensor", match.outputs["y"], 3)
    return build.elements(parts, {"y": 0})


def _writes(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    return {"y": build.call("aten::abs_", match.bound["x"])}


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (_uses_what_it_replaces, "which the match removes"),
        (_uses_what_becomes_its_element, "which the match removes"),
        (_writes, "a rewrite may write only memory that it allocated itself"),
    ],
)
def test_rewrite_that_cannot_be_right_is_refused_when_it_is_built(
    rewrite: Rewrite, message: str
) -> None:
    with pytest.raises(fx_passes.RuleError, match=message) as raised:
        run(rewrite)

    assert "bad_rule" in str(raised.value)


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        ("aten::isnan", (), "dtype torch.bfloat16, expected torch.bool"),
        ("aten::t", (), r"shape \[3, 4\], expected \[4, 3\]"),
        ("aten::sum.dim_IntList", ([0],), "rank 2, expected 1"),
        ("aten::as_strided", ((3, 4), (1, 3)), r"strides \[4, 1\], expected \[1, 3\]"),
    ],
)
def test_recorded_value_that_is_not_what_the_operator_gives_is_found(
    target: str, arguments: tuple[object, ...], message: str
) -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call(target, match.bound["x"], *arguments, val=match.value("y"))}

    with pytest.raises(fx_passes.PassError, match=message) as raised:
        run(rewrite)

    assert "'bad_rule'" in str(raised.value)


def test_symbolic_sizes_get_no_guards() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::clone", match.bound["x"], val=match.value("y"))}

    module = capture_graph(
        lambda x: x.neg().neg() * 2, random_tensors((3, 4), device="cpu"), dynamic={0: 0}
    )
    (x,) = (
        node.meta["example_value"]
        for node in module.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("example_value"), torch.Tensor)
    )
    guards = x.fake_mode.shape_env.guards
    before = len(guards)
    rule = fx_passes.Rule(name="rule", patterns=(_pattern,), rewrite=rewrite)
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    passes = (fx_passes.NormalizePass(), rules)
    observer = fx_passes.VerifyObserver(execute=True)

    report = fx_passes.Pipeline(passes=passes, observers=(observer,)).run(module).report

    assert report.match_counts() == {"rule": 1}
    assert len(guards) == before


def test_replacement_that_computes_something_else_is_found_when_it_is_run() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::exp", match.bound["x"])}

    assert run(rewrite).report.match_counts() == {"bad_rule": 1}
    with pytest.raises(fx_passes.PassError, match="differs by up to") as raised:
        run(rewrite, execute=True)

    assert "'bad_rule' at `neg" in str(raised.value)


def test_right_replacement_passes_when_it_is_run() -> None:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::clone", match.bound["x"])}

    assert run(rewrite, execute=True).report.match_counts() == {"bad_rule": 1}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fusions_for_npus_pass_when_they_are_run(dtype: torch.dtype) -> None:
    npu = torch.ops.npu

    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        total = x + residual
        normed = npu.npu_rms_norm(total, weight, 1e-5)[0]
        quantized, scale = npu.npu_dynamic_quant(normed)
        gate, up = normed.chunk(2, dim=-1)
        return quantized, scale, total, torch.nn.functional.silu(gate) * up

    module = capture_graph(function, random_tensors((6, 64), (6, 64), (64,), dtype=dtype))
    observer = fx_passes.VerifyObserver(execute=True)

    result = fx_passes.default_npu_pipeline().observed_by(observer).run(module)

    assert result.report.match_counts()["fuse_swiglu"] == 1
    assert observer._compared


def _drops_the_write(module: GraphModule) -> bool:
    (write,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    write.replace_all_uses_with(write.args[1])
    module.graph.erase_node(write)
    return True


def _writes_an_input(module: GraphModule) -> bool:
    (negated,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    negated.target = torch.ops.aten.neg_.default
    return True


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_drops_the_write, "the graph no longer writes `L_cache_`"),
        (_writes_an_input, "the graph writes `L_x_`, which nothing wrote before"),
    ],
)
def test_pass_that_writes_something_else_is_found(
    spoil: Callable[[GraphModule], bool], message: str
) -> None:
    def step(x: Tensor, cache: Tensor) -> Tensor:
        cache.view(12).copy_(x.view(12))
        return x.neg()

    spoiling = fx_passes.FunctionPass(name="spoiling", function=spoil)
    pipeline = fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(), spoiling), observers=(fx_passes.VerifyObserver(),)
    )
    module = capture_graph(step, random_tensors((3, 4), (3, 4), device="cpu"))

    with pytest.raises(fx_passes.PassError, match=message) as raised:
        pipeline.run(module)

    assert "after the pass 'spoiling'" in str(raised.value)


def test_write_that_is_spelt_otherwise_is_the_same() -> None:
    def step(x: Tensor, cache: Tensor) -> Tensor:
        cache[0] = 1.0
        cache += x
        return x + cache.add_(1)

    pipeline = fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(),), observers=(fx_passes.VerifyObserver(),)
    )
    module = capture_graph(step, random_tensors((3, 4), (3, 4), device="cpu"))

    assert pipeline.run(module).modified
