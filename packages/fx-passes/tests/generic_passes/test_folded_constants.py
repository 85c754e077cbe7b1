"""Values that depend only on weights are computed when weights change, not at every step."""

from __future__ import annotations

import copy
import pickle
import random
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule, Node, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import Module, Parameter

import cann_sim
import fx_passes
from fx_passes.generic_passes import FoldConstantsPass, PreparedValues, prepared_values_of
from fx_passes.inductor import PostGradPasses
from fx_passes.testing import assert_same_values, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._ops import OpOverload
    from torch.fx.node import Argument

npu = torch.ops.npu
aten = torch.ops.aten


def launches_of(function: Callable[..., Tensor], *inputs: Tensor) -> dict[str, int]:
    """Return the kernels that a call launches, by their names in CANN."""
    torch.accelerator.synchronize()
    before = cann_sim.counters()
    with torch.no_grad():
        function(*inputs)
    torch.accelerator.synchronize()
    return dict((cann_sim.counters() - before).launches_by_operator)


FUSED = [{"aclnnAddRmsNormQuant": 1}, {"aclnnAddRmsNormQuantV2": 1}]


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Fused kernels quantise the norm before it is rounded, so values may differ by one."""
    assert found.dtype == expected.dtype == torch.int8
    assert (found.cpu().int() - expected.cpu().int()).abs().max() <= 1


class QuantizedNorm(Module):
    """A norm and a static quantisation as engines call it: by a reciprocal, without division.

    Args:
        kind: Storage of the reciprocal: a parameter as in SGLang, a plain tensor as in
            vllm-ascend (`1 / Parameter`), or a buffer.
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16, kind: str = "parameter") -> None:
        super().__init__()
        weight, scale = random_tensors((64,), (64,), dtype=dtype, device="npu")
        self.weight = Parameter(weight, requires_grad=False)
        reciprocal = scale.abs() + 10
        if kind == "parameter":
            self.reciprocal: Tensor = Parameter(reciprocal, requires_grad=False)
        elif kind == "buffer":
            self.register_buffer("reciprocal", reciprocal)
        else:
            self.reciprocal = reciprocal
        self.offset = Parameter(torch.zeros(64, dtype=dtype, device="npu"), requires_grad=False)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        normed = npu.npu_add_rms_norm(x, residual, self.weight, 1e-5)[0]
        out: Tensor = npu.npu_quantize(normed, self.reciprocal, self.offset, torch.qint8, -1, False)
        return out


class Door:
    """One way from a model to a graph that is fused and run."""

    def __init__(self) -> None:
        self.modules: list[GraphModule] = []

    def _fuse(self, module: GraphModule, _: object = None) -> Callable[..., Tensor]:
        fx_passes.default_npu_pipeline().run(module)
        self.modules.append(module)
        return module.forward

    def dynamo(self, model: Module, inputs: list[Tensor]) -> Callable[..., Tensor]:
        del inputs
        torch.compiler.reset()
        return torch.compile(model, backend=self._fuse, fullgraph=True)

    def make_fx(self, model: Module, inputs: list[Tensor]) -> GraphModule:
        with torch.no_grad():
            self._fuse(make_fx(model)(*inputs))
        return self.modules[0]


DOORS = ["dynamo", "make_fx"]
KINDS = ["parameter", "attribute", "buffer"]
INPUTS = ((6, 64), (6, 64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_static_quantisation_by_a_reciprocal_is_one_launch(
    door: str, kind: str, dtype: torch.dtype
) -> None:
    inputs = random_tensors(*INPUTS, dtype=dtype, device="npu")
    model = QuantizedNorm(dtype, kind)
    before = launches_of(model, *inputs)
    with torch.no_grad():
        expected = model(*inputs)
        run = getattr(Door(), door)(model, inputs)
        run(*inputs)

    after = launches_of(run, *inputs)

    assert sum(before.values()) == 2
    assert after in FUSED
    with torch.no_grad():
        assert_close(run(*inputs), expected)


def write(model: QuantizedNorm) -> None:
    with torch.no_grad():
        model.reciprocal.mul_(2)


def replace(model: QuantizedNorm) -> None:
    kind = type(model.reciprocal)
    new = model.reciprocal.detach() * 2
    model.reciprocal = Parameter(new, requires_grad=False) if kind is Parameter else new


def swap(model: QuantizedNorm) -> None:
    model.reciprocal.data = model.reciprocal.detach() * 2


def write_in_inference_mode(model: QuantizedNorm) -> None:
    with torch.inference_mode():
        model.reciprocal.mul_(2)


CHANGES = [write, replace, swap, write_in_inference_mode]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_changed_weight_is_seen_by_the_next_call(
    kind: str, change: Callable[[QuantizedNorm], None]
) -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    model = QuantizedNorm(kind=kind)
    run = Door().dynamo(model, inputs)
    with torch.no_grad():
        before = run(*inputs)
        change(model)
        after = run(*inputs)

        assert_close(after, model(*inputs))
        assert (after.cpu().int() - before.cpu().int()).abs().max() > 1
    assert launches_of(run, *inputs) in FUSED


def test_values_stay_in_place_and_refresh_finds_what_changed() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    model, door = QuantizedNorm(), Door()
    run = door.dynamo(model, inputs)
    with torch.no_grad():
        run(*inputs)
    (values,) = prepared_values_of(door.modules[0])
    (before,) = values(model.reciprocal)

    assert not values.refresh()
    write(model)
    assert values.refresh()
    assert not values.refresh()
    model.reciprocal.data.mul_(2)
    assert not values.refresh()
    assert values.refresh(compare=True)
    assert not values.refresh(compare=True)

    (after,) = values(model.reciprocal)
    assert after is before
    assert torch.equal(after.cpu(), (1 / model.reciprocal).cpu())


def test_values_are_computed_in_the_step_while_it_is_traced() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    model, door = QuantizedNorm(), Door()
    run = door.make_fx(model, inputs)
    with torch.no_grad():
        run(*inputs)
        again = make_fx(door.modules[0])(*inputs)

    targets = [node.target for node in again.graph.nodes]
    assert aten.reciprocal.default in targets
    with torch.no_grad():
        write(model)
        assert_close(again(*inputs), model(*inputs))


def test_weights_made_in_inference_mode_are_not_watched_but_right() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    with torch.inference_mode():
        model = QuantizedNorm()
        run = Door().dynamo(model, inputs)
        run(*inputs)
        write(model)
        assert_close(run(*inputs), model(*inputs))


def test_values_first_needed_in_inference_mode_can_be_renewed_outside() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    model = QuantizedNorm()
    run = Door().dynamo(model, inputs)
    with torch.inference_mode():
        run(*inputs)
    with torch.no_grad():
        write(model)
        assert_close(run(*inputs), model(*inputs))


def test_copy_of_a_module_belongs_to_other_weights() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    run = Door().make_fx(QuantizedNorm(), inputs)
    with torch.no_grad():
        before = run(*inputs)
        other = copy.deepcopy(run)
        assert torch.equal(other(*inputs), before)
        for name, each in other.named_parameters():
            each.mul_(2 if name != "_param_constant0" else 1)
        assert (other(*inputs).int() - before.int()).abs().max() > 1
        assert torch.equal(run(*inputs), before)


def test_module_with_prepared_values_is_not_pickled() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    run = Door().make_fx(QuantizedNorm(), inputs)

    with pytest.raises(pickle.PicklingError, match="without 'fold_constants'"):
        pickle.dumps(run)


class QuantizedProduct(Module):
    """SwiGLU and a static quantisation by a reciprocal; the fused kernel divides by float32."""

    def __init__(self) -> None:
        super().__init__()
        (scale,) = random_tensors((64,), dtype=torch.bfloat16, device="npu")
        self.reciprocal = Parameter(scale.abs() + 10, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        product = npu.npu_swiglu(x)
        out: Tensor = npu.npu_quantize(product, self.reciprocal, None, torch.qint8, -1, False)
        return out


@pytest.mark.parametrize("prepares", ["pipeline", "without_the_pass", "another_compiler"])
def test_reciprocal_counts_as_a_launch_where_nothing_prepares_weights(prepares: str) -> None:
    pipeline = fx_passes.default_npu_pipeline()
    reports: list[fx_passes.Report] = []

    def fuse(module: GraphModule, _: object) -> Callable[..., Tensor]:
        if prepares == "another_compiler":
            passes = PostGradPasses(pipeline)
            passes(module)
            reports.append(passes.report)
        elif prepares == "without_the_pass":
            reports.append(pipeline.without("fold_constants").run(module).report)
        else:
            reports.append(pipeline.run(module).report)
        return module.forward

    model, (x,) = QuantizedProduct(), random_tensors((6, 128), dtype=torch.bfloat16, device="npu")
    before = launches_of(model, x)
    with torch.no_grad():
        expected = model(x)
        torch.compiler.reset()
        run = torch.compile(model, backend=fuse, fullgraph=True)
        assert_close(run(x), expected)

    after = launches_of(run, x)

    assert sum(before.values()) == 2
    if prepares == "pipeline":
        assert sum(after.values()) == 1
        return
    assert after == before
    (miss,) = reports[0].near_misses("fuse_swiglu_quant")
    assert "would cost more than it saves" in miss.reason


def test_graphs_of_another_compiler_get_buffers() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    model = QuantizedNorm()
    with torch.no_grad():
        module = make_fx(model)(*inputs)
        expected = module(*inputs)
    pipeline = fx_passes.default_npu_pipeline().without("fold_constants")
    fold = FoldConstantsPass(watches=False)
    pipeline = fx_passes.Pipeline(passes=(*pipeline.passes, fold))

    pipeline.run(module)

    assert not prepared_values_of(module)
    names = [name for name, _ in module.named_buffers() if name.startswith("_fx_passes")]
    (held,) = names
    assert torch.equal(module.get_buffer(held).cpu(), (1 / model.reciprocal).cpu())
    with torch.no_grad():
        assert_close(module(*inputs), expected)
    assert not pipeline.run(module).modified


def test_second_run_changes_nothing_and_observers_agree() -> None:
    inputs = random_tensors(*INPUTS, device="npu")
    door = Door()
    with torch.no_grad():
        module = make_fx(QuantizedNorm())(*inputs)
    pipeline = fx_passes.default_npu_pipeline().observed_by(fx_passes.VerifyObserver(execute=True))
    del door

    assert pipeline.run(module).report.match_counts()["fuse_add_rms_norm_quant"] == 1
    assert not pipeline.run(module).modified
    assert len(prepared_values_of(module)) == 1


def constant_graph(how: str) -> GraphModule:
    """Return the graph of a product with the reciprocal of a buffer, which may be written."""
    graph = torch.fx.Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    inverse = graph.call_function(aten.reciprocal.default, (scale,))
    written = {"scale_written": scale, "inverse_written": inverse}.get(how)
    if written is not None:
        graph.call_function(aten.add_.Scalar, (written, 1))
    used = graph.call_function(aten.reshape.default, (inverse, [4])) if how == "view" else inverse
    product = graph.call_function(aten.mul.Tensor, (x, used))
    if how == "shared_view":
        row = graph.call_function(aten.unsqueeze.default, (scale, 0))
        zeros = graph.call_function(aten.zeros_like.default, (row,))
        product = graph.call_function(
            aten.mul.Tensor, (graph.call_function(aten.add.Tensor, (zeros, row)), used)
        )
    graph.output(inverse if how == "returned" else product)
    for node in graph.nodes:
        node.meta["val"] = torch.empty(4, device="meta")
    root = Module()
    root.register_buffer("scale", torch.full((4,), 2.0))
    return GraphModule(root, graph)


@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize(
    ("how", "folded"),
    [
        ("plain", True),
        ("view", True),
        ("shared_view", True),
        ("scale_written", False),
        ("inverse_written", False),
        ("returned", False),
    ],
)
def test_constant_is_folded_only_where_it_stays_one(how: str, folded: bool, watches: bool) -> None:
    x = torch.ones(4)
    module = constant_graph(how)
    pipeline = fx_passes.Pipeline(passes=(FoldConstantsPass(watches=watches),))

    assert pipeline.run(module).modified == folded

    targets = [node.target for node in module.graph.nodes]
    assert (aten.reciprocal.default not in targets) == folded
    assert_same_values(module(x), constant_graph(how)(x))
    assert not pipeline.run(module).modified


def random_constants(seed: int) -> GraphModule:
    """Return a graph of calls on a weight of the module and one that is an input, some written."""
    rng = random.Random(seed)
    graph = torch.fx.Graph()
    x, given = graph.placeholder("x"), graph.placeholder("given")
    given.meta["tensor_dict"] = {"_dynamo_static_input_type": "guarded"}
    held = graph.get_attr("scale")
    root = Module()
    root.register_buffer("scale", torch.full((4,), 2.0))
    for node in (x, given, held):
        node.meta["val"] = torch.empty(4, device="meta")
    found = [given, held]
    calls: list[tuple[OpOverload, tuple[Argument, ...]]] = [
        (aten.reciprocal.default, ()),
        (aten.to.dtype, (torch.float16,)),
        (aten.reshape.default, ([-1],)),
        (aten.unsqueeze.default, (0,)),
        (aten.slice.Tensor, (0, 0, 1)),
        (aten.select.int, (0, 0)),
        (aten.zeros_like.default, ()),
        (aten.add_.Scalar, (1,)),
    ]
    outputs: list[Node] = []
    for _ in range(rng.randint(2, 9)):
        used = rng.choice(found)
        (target, others), *_ = rng.choices(calls, weights=[3, 2, 3, 3, 2, 2, 3, 1])
        if target in {aten.select.int, aten.slice.Tensor} and not used.meta["val"].dim():
            continue
        node = graph.call_function(target, (used, *others))
        node.meta["val"] = target(used.meta["val"], *others)
        if target is not aten.add_.Scalar:
            found.append(node)
        if rng.random() < 0.5:
            outputs.append(graph.call_function(aten.mul.Tensor, (rng.choice(found), x)))
            outputs[-1].meta["val"] = torch.empty(4, device="meta")
    if rng.random() < 0.2:
        outputs.append(found[-1])
    graph.output(tuple(outputs))
    return GraphModule(root, graph)


@pytest.mark.parametrize("watches", [True, False])
def test_random_constants_keep_their_values(watches: bool) -> None:
    pipeline = fx_passes.Pipeline(passes=(FoldConstantsPass(watches=watches),))
    folded = 0
    for seed in range(300):
        module, expected = random_constants(seed), random_constants(seed)
        folded += pipeline.run(module).modified
        weights = torch.ones(4), torch.ones(4)
        for step in range(3):
            x = torch.arange(1.0, 5.0) + step  # no zero, as infinities come of reciprocals
            assert_same_values(module(x, weights[0]), expected(x, weights[1]))
            if watches:
                for each in weights:
                    each.add_(1)

    assert folded > 50


def test_larger_weights_stay_in_the_step() -> None:
    class Cast(Module):
        def __init__(self) -> None:
            super().__init__()
            large, small = random_tensors((4, 4), (4,), device="npu")
            self.large = Parameter(large, requires_grad=False)
            self.small = Parameter(small, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.large.float() + self.small.float()

    x, model = torch.ones(4, 4, device="npu"), Cast()
    run = Door().dynamo(model, [x])
    with torch.no_grad():
        run(x)

    saved = sum(launches_of(model, x).values()) - sum(launches_of(run, x).values())
    assert saved == 1


def test_graph_without_constants_is_left_alone() -> None:
    module = symbolic_trace(lambda x: x.reciprocal() * 2)
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), FoldConstantsPass()))

    assert not pipeline.run(module).modified


def test_prepared_values_are_a_module_of_the_graph() -> None:
    module = constant_graph("plain")

    fx_passes.Pipeline(passes=(FoldConstantsPass(),)).run(module)

    (values,) = prepared_values_of(module)
    assert isinstance(values, PreparedValues)
    assert not dict(module.named_parameters())
