"""`VerifyObserver(execute=True)` finds wrong rewrites and does not raise on right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import GraphLevel, capture_graph, random_tensors
from fx_passes.torch_internals import aot_autograd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule, Node

    Rewrite = Callable[[fx_passes.Match, fx_passes.GraphBuilder], dict[str, Node]]

aten = torch.ops.aten
npu = torch.ops.npu
LEVELS: list[GraphLevel] = ["dynamo", "aten"]


def product(x: Tensor, scale: Tensor) -> dict[str, Tensor]:
    return {"y": aten.mul(x, scale)}


def verified(
    module: GraphModule, rewrite: Rewrite, pattern: Callable[..., dict[str, Tensor]] = product
) -> fx_passes.VerifyObserver:
    rule = fx_passes.Rule(
        name="rule", patterns=(pattern,), rewrite=rewrite, numerics="rounding", accepts_cost=True
    )
    rules = fx_passes.RulePass(name="rules", rules=(rule,), repeats=False)
    observer = fx_passes.VerifyObserver(execute=True)
    passes = (fx_passes.NormalizePass(), rules)
    report = fx_passes.Pipeline(passes=passes, observers=(observer,)).run(module).report
    assert report.match_counts() == {"rule": 1}, str(report)
    return observer


@pytest.mark.parametrize("level", LEVELS)
def test_node_that_was_there_before_is_an_input_of_both(level: GraphLevel) -> None:
    module = capture_graph(
        lambda x, y: (x + y).reshape(x.shape) * 2,
        random_tensors((2, 4), (2, 4), device="cpu"),
        level=level,
    )
    observer = fx_passes.VerifyObserver(execute=True)

    report = fx_passes.default_npu_pipeline().observed_by(observer).run(module).report

    counts = report.match_counts()
    assert counts["remove_reshape"] == 1, str(report)
    assert observer.not_decided == []


def divide_by_the_source(steps: int) -> Rewrite:
    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        source = match.bound["scale"]
        for _ in range(steps):
            assert isinstance(source, torch.fx.Node)
            source = source.args[0]
        return {"y": build.call("aten::div.Tensor", match.bound["x"], source, val=match.value("y"))}

    return rewrite


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_scale_and_its_reciprocal_are_drawn_together(steps: int) -> None:
    def function(x: Tensor, scale: Tensor) -> Tensor:
        for _ in range(steps - 1):
            scale = scale.sqrt()
        return x * scale.reciprocal()

    (x, scale) = random_tensors((4,), (4,), dtype=torch.float32, device="cpu")
    module = capture_graph(function, [x, scale], level="aten")

    if steps == 1:
        assert verified(module, divide_by_the_source(steps)).not_decided == []
    else:
        # What it is the reciprocal of is not the scale itself: wrong, and found.
        with pytest.raises(fx_passes.PassError, match="differs by up to"):
            verified(module, divide_by_the_source(steps))


def test_inputs_with_a_common_source_are_drawn_together() -> None:
    def function(x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        doubled = source * 2.0
        return doubled.exp(), x * torch.reciprocal(source.abs())

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        graph = match.anchor.graph
        (doubled,) = graph.find_nodes(op="call_function", target=aten.mul.Tensor)[:1]
        half = build.call("aten::mul.Tensor", doubled, 0.5)
        size = build.call("aten::abs", half)
        return {"y": build.call("aten::div.Tensor", match.bound["x"], size)}

    def scaled(x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"y": aten.mul(x, aten.reciprocal(scale))}

    inputs = random_tensors((4,), (4,), dtype=torch.float32, device="cpu")

    observer = verified(capture_graph(function, inputs, level="aten"), rewrite, scaled)

    assert observer.not_decided == []


def test_inputs_that_nothing_ties_together_are_not_decided() -> None:
    """A parameter and another that the engine keeps as its reciprocal."""

    def function(x: Tensor, scale: Tensor, reciprocal: Tensor) -> tuple[Tensor, Tensor]:
        return x * scale, reciprocal + 1

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        inputs = match.anchor.graph.find_nodes(op="placeholder")
        (other,) = [each for each in inputs if each not in match.inputs]
        return {"y": build.call("aten::div.Tensor", match.bound["x"], other)}

    inputs = random_tensors((4,), (4,), (4,), dtype=torch.float32, device="cpu")

    observer = verified(capture_graph(function, inputs, level="aten"), rewrite)

    ((rule, _, reason),) = observer.not_decided
    assert rule == "rule"
    assert "does not show what that has to do with" in reason


def test_matches_of_one_pass_that_build_on_each_other_are_compared() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.relu(x * y + 1)
        return x

    module = capture_graph(function, random_tensors((3, 4), (3, 4), device="cpu"))

    def pattern(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"z": aten.relu(aten.mul(x, y) + 1)}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        added = build.call("aten::add.Tensor", build.call("aten::mul.Tensor", *_xy(match)), 1)
        return {"z": build.call("aten::clamp", added, 0)}

    def _xy(match: fx_passes.Match) -> tuple[object, object]:
        return match.bound["x"], match.bound["y"]

    rule = fx_passes.Rule(name="rule", patterns=(pattern,), rewrite=rewrite)
    rules = fx_passes.RulePass(name="rules", rules=(rule,), repeats=False)
    observer = fx_passes.VerifyObserver(execute=True)
    passes = (fx_passes.NormalizePass(), rules)

    report = fx_passes.Pipeline(passes=passes, observers=(observer,)).run(module).report

    assert report.match_counts() == {"rule": 4}
    assert observer.not_decided == []


def test_wrong_rewrite_is_found_in_a_graph_of_which_some_values_are_not_recorded() -> None:
    """Graphs of whole models have nodes without metadata, such as those that change a mode."""

    def function(x: Tensor, scale: Tensor) -> Tensor:
        return (x * scale).sin().cos()

    inputs = random_tensors((4,), (4,), dtype=torch.float32, device="cpu")
    module = capture_graph(function, inputs, level="aten")
    for target in (aten.sin.default, aten.cos.default):
        (node,) = module.graph.find_nodes(op="call_function", target=target)
        del node.meta["val"]

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::add.Tensor", match.bound["x"], match.bound["scale"])}

    with pytest.raises(fx_passes.PassError, match="differs by up to"):
        verified(module, rewrite)


# torch_npu says once that a tensor of other strides keeps its format.
@pytest.mark.filterwarnings("ignore:Cannot create tensor with internal format:UserWarning")
@pytest.mark.parametrize("turned", ["x", "factor", "addend"])
def test_kernels_with_operands_of_other_strides_raise_no_alarm(turned: str) -> None:
    shape = (1, 4, 8, 64)
    x, factor, addend = random_tensors(shape, shape, shape, device="npu")
    given = {"x": x, "factor": factor, "addend": addend}
    given[turned] = given[turned].transpose(1, 2).contiguous().transpose(1, 2)
    observer = fx_passes.VerifyObserver(execute=True)
    pipeline = fx_passes.default_npu_pipeline().observed_by(observer)
    module = capture_graph(lambda x, factor, addend: x * factor + addend, [*given.values()])

    report = pipeline.run(module).report

    assert report.match_counts()["fuse_multiply_add"] <= 1
    torch.testing.assert_close(
        module(*given.values())[0].cpu(), (x * factor + addend).cpu(), rtol=0.05, atol=0.05
    )


def fused(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    normed = npu.npu_rms_norm(total, weight, 1e-5)[0]
    return (*npu.npu_dynamic_quant(normed), total, total * 2)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("is_wrong", [False, True])
def test_it_compares_inside_the_compilers_of_aot_autograd(
    is_wrong: bool, dynamic: bool | None
) -> None:
    observer = fx_passes.VerifyObserver(execute=True)
    guards: list[int] = []

    def wrong(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::exp", match.bound["x"], val=match.value("y"))}

    def doubled(x: Tensor) -> dict[str, Tensor]:
        return {"y": x * 2}

    rule = fx_passes.Rule(name="wrong", patterns=(doubled,), rewrite=wrong)
    more = (fx_passes.RulePass(name="wrong", rules=(rule,)),) if is_wrong else ()
    pipeline = fx_passes.default_npu_pipeline()
    pipeline = fx_passes.Pipeline(passes=(*pipeline.passes, *more), observers=(observer,))

    def compiler(module: GraphModule, _: Sequence[object]) -> Callable[..., object]:
        values = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
        fake = next(each for each in values if isinstance(each, Tensor))
        shapes = fake.fake_mode.shape_env  # type: ignore[attr-defined]
        guards.append(len(shapes.guards))
        pipeline.run(module)
        guards.append(len(shapes.guards))
        assert not shapes.pending_fresh_unbacked_symbols
        return module.forward

    inputs = random_tensors((6, 64), (6, 64), (64,), device="npu")
    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
    run = torch.compile(fused, backend=backend, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        if is_wrong:
            with pytest.raises(Exception, match=r"what replaces `mul.*` differs by up to"):
                run(*inputs)
        else:
            run(*inputs)
            assert guards[0] == guards[1]
    assert observer.not_decided == []
    assert observer._compared
