"""Operators with writes missing from their schemas: fused if nobody sees it, otherwise unchanged.

The operators of the engine are those of `conftest.py`, which write in place as its kernels do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from fusions.attention_heads import AttentionHeads, qkv_inputs
from fusions.rank_runs import run_ranks
from torch import Tensor
from torch._functorch import config as functorch_config
from torch.fx import Graph

import fx_passes
from fx_passes.dialects import vllm_ascend_dialect
from fx_passes.functional import FunctionalBackend
from fx_passes.fusions import fuse_split_qkv_rms_norm_rotary_embedding
from fx_passes.generic_passes import ShareEqualCallsPass
from fx_passes.memory import EffectTable, witness_of_write
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.fx import GraphModule

pytestmark = pytest.mark.usefixtures("engine_operators", "rotary_embedding")

vllm, npu = torch.ops.vllm, torch.ops.npu
TWO = "two:0"
FORMS = fx_passes.Pipeline(
    passes=(
        fx_passes.NormalizePass(),
        fx_passes.RulePass(name="forms", rules=vllm_ascend_dialect({TWO: "7"})),
    )
)
REDUCE = "vllm_ascend_all_reduce"


def compare(
    function: Callable[..., object], pipeline: fx_passes.Pipeline, *, ranks: int = 2
) -> tuple[fx_passes.PipelineResult, GraphModule]:
    """Rewrite Dynamo's graph of `function(x, y)`; compare results and inputs after a run."""
    given = random_tensors((4, 8), (4, 8), dtype=torch.float32, device="cpu")
    module = capture_graph(function, [each.clone() for each in given])
    result = pipeline.run(module)
    expected_inputs = [each.clone() for each in given]
    expected = function(*expected_inputs)
    inputs = [[each.clone() for each in given] for _ in range(ranks)]
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    used = [[each["xy".index(name[2])] for name in names] for each in inputs]
    (found, *_) = run_ranks([module] * ranks, used)
    assert_same_values((found, inputs[0]), (expected, expected_inputs))
    return result, module


READ_LATER: dict[str, Callable[..., object]] = {
    "input": lambda x, y: (vllm.all_reduce(x, TWO) + y,),
    "read": lambda x, y: (vllm.all_reduce(s := x.sin(), TWO) * s + y,),
    "returned": lambda x, y: (vllm.all_reduce(s := x.sin(), TWO) + y, s),
    "view": lambda x, y: (vllm.all_reduce((s := x.sin()).view(-1), TWO), s.exp() + y),
    "base": lambda x, y: (vllm.all_reduce((s := x.sin())[1:], TWO), s.exp() + y),
    "perhaps": lambda x, y: (vllm.all_reduce((s := x.sin()).contiguous(), TWO), s + y),
    "other part": lambda x, y: (vllm.all_reduce((s := x.sin().chunk(2))[0], TWO), s[1] + y[:2]),
    "beside": lambda x, y: ((s := x.sin()) + vllm.all_reduce(s, TWO).mul_(3) + y,),
}


@pytest.mark.parametrize("function", READ_LATER.values(), ids=READ_LATER)
def test_reduction_in_place_stays_where_it_is_visible(function: Callable[..., object]) -> None:
    result, module = compare(function, FORMS)

    assert not result.report.matches(REDUCE)
    (miss,) = result.report.near_misses(REDUCE)
    assert "may show that memory later" in miss.reason
    assert vllm.all_reduce.default in {node.target for node in module.graph.nodes}


UNSEEN: dict[str, Callable[..., object]] = {
    "own": lambda x, y: (vllm.all_reduce(x.sin(), TWO) + y,),
    "read before": lambda x, y: ((s := x.sin()).exp() + vllm.all_reduce(s, TWO) + y,),
    "view": lambda x, y: (vllm.all_reduce(x.sin().view(-1), TWO).view(4, 8) + y,),
    "written later": lambda x, y: (vllm.all_reduce(x.sin(), TWO).mul_(3) + y,),
    "twice": lambda x, y: (vllm.all_reduce(vllm.all_reduce(x.sin(), TWO) * y, TWO),),
    "written before": lambda x, y: (vllm.all_reduce(x.sin().add_(y), TWO),),
}


@pytest.mark.parametrize("function", UNSEEN.values(), ids=UNSEEN)
def test_reduction_in_place_of_what_nobody_else_knows_is_rewritten(
    function: Callable[..., object],
) -> None:
    result, module = compare(function, FORMS)

    assert result.report.matches(REDUCE)
    assert vllm.all_reduce.default not in {node.target for node in module.graph.nodes}


def test_reduction_of_what_another_reduction_returned_is_rewritten_after_it() -> None:
    result, _ = compare(
        lambda x, y: (vllm.all_reduce(vllm.all_reduce(x.sin(), TWO), TWO) + y,), FORMS
    )

    assert len(result.report.matches(REDUCE)) == 2


IN_PLACE = {
    "all_reduce": lambda x: vllm.all_reduce(x, TWO),
    "maybe_all_reduce": lambda x: vllm.maybe_all_reduce_tensor_model_parallel(x),  # noqa: PLW0108 - made when it is called
    "maybe_pad_and_reduce": lambda x: vllm.maybe_pad_and_reduce(x),  # noqa: PLW0108 - the same
    "rotary": lambda x: vllm.npu_rotary_embedding(
        torch.arange(4), x, torch.ones(4, 8), torch.full((4, 8), 0.5), 8, 8
    )[0],
}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE)
def test_copy_that_keeps_an_input_from_a_hidden_write_stays(
    write: Callable[[Tensor], Tensor],
) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor]:
        return (write(x.clone()) + x + y,)

    _, module = compare(function, fx_passes.default_npu_pipeline(), ranks=1)

    assert torch.ops.aten.clone.default in {node.target for node in module.graph.nodes}


def _sin_exp(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.exp(torch.sin(x))}


def _build_sin_exp(
    match: fx_passes.Match, build: fx_passes.GraphBuilder
) -> dict[str, torch.fx.Node]:
    value = match.value("y")
    sine = build.call("aten::sin", match.bound["x"], val=value)
    return {"y": build.call("aten::exp", sine, val=value)}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE)
def test_match_does_not_read_across_a_hidden_write(write: Callable[[Tensor], Tensor]) -> None:
    rule = fx_passes.Rule(name="sin_exp", patterns=(_sin_exp,), rewrite=_build_sin_exp)
    rules = fx_passes.RulePass(name="rules", rules=(rule,), repeats=False)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        sine = torch.sin(x)
        written = write(x)
        return torch.exp(sine), written + y

    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules))
    result, _ = compare(function, pipeline, ranks=1)

    assert not result.report.matches("sin_exp")


HEADS = AttentionHeads()
ROPE = "fuse_split_qkv_rms_norm_rotary_embedding"


def rotary_pipeline() -> fx_passes.Pipeline:
    rules = (fuse_split_qkv_rms_norm_rotary_embedding(kernels=()),)
    return fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(), fx_passes.RulePass(name="rules", rules=rules))
    )


def rotated(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, table: Tensor, positions: Tensor
) -> tuple[Tensor, ...]:
    """Return q and k before they are turned, the turned ones, and v."""
    size = HEADS.head_dim
    q, k, v = qkv.split([HEADS.q_size, HEADS.kv_size, HEADS.kv_size], dim=-1)  # type: ignore[no-untyped-call]
    q = npu.npu_rms_norm(q.reshape(-1, size), q_weight, HEADS.eps)[0].view(-1, HEADS.q_size)
    k = npu.npu_rms_norm(k.reshape(-1, size), k_weight, HEADS.eps)[0].view(-1, HEADS.kv_size)
    return q, k, *vllm.npu_rotary_embedding(positions, q, k, table, size, table.shape[1], True), v


def rotary_inputs() -> list[Tensor]:
    qkv, q_weight, k_weight, *_ = qkv_inputs(HEADS, 5, dtype=torch.float16, device="npu")
    (table,) = random_tensors((32, HEADS.head_dim), dtype=torch.float16, device="npu", seed=3)
    return [qkv, q_weight, k_weight, table, torch.tensor([7, 0, 31, 7, 2]).to("npu")]


def run_rotary(module: GraphModule, tensors: list[Tensor]) -> object:
    names = ("qkv", "q_weight", "k_weight", "table", "positions")
    given = dict(zip(names, tensors, strict=True))
    return module(*[given[node.name[2:-1]] for node in module.graph.find_nodes(op="placeholder")])


def test_rotation_in_place_of_what_the_fusion_computes_is_fused() -> None:
    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, table: Tensor, positions: Tensor
    ) -> tuple[Tensor, ...]:
        return rotated(qkv, q_weight, k_weight, table, positions)[2:]

    tensors = rotary_inputs()
    module = capture_graph(function, tensors)
    assert_rewritten(rotary_pipeline(), module, {ROPE: 1})
    assert_same_values(run_rotary(module, tensors), function(*tensors))


@pytest.mark.parametrize("seen", [0, 1])
def test_rotation_in_place_is_left_alone_where_the_norm_is_read_later(seen: int) -> None:
    def function(
        qkv: Tensor, q_weight: Tensor, k_weight: Tensor, table: Tensor, positions: Tensor
    ) -> tuple[Tensor, ...]:
        found = rotated(qkv, q_weight, k_weight, table, positions)
        return *found[2:], found[seen] * 2

    tensors = rotary_inputs()
    module = capture_graph(function, tensors)
    assert_left_alone(rotary_pipeline(), module, ROPE, "inside the match is used by")
    assert_same_values(run_rotary(module, tensors), function(*tensors))


RETURNING = {
    "gather": lambda x, y: vllm.maybe_all_gather_and_maybe_unpad(x, True),
    "residual": lambda x, y: vllm.maybe_chunk_residual(y, x),
    "chunk": lambda x, y: vllm.sequence_parallel_chunk_impl(x),
}


@pytest.fixture
def returning_arguments() -> Iterator[None]:
    """As everywhere: with `CI` in the environment newer releases of torch refuse such operators."""
    name = "error_on_custom_op_aliasing"
    known = {name: False} if hasattr(functorch_config, name) else {}
    with functorch_config.patch(known):
        yield


@pytest.mark.usefixtures("returning_arguments")
@pytest.mark.filterwarnings("ignore:.*output of this custom operator:UserWarning")
@pytest.mark.parametrize("operator", RETURNING.values(), ids=RETURNING)
def test_result_that_is_the_argument_is_not_in_memory_that_is_written_later(
    operator: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """When a functional graph is re-inplaced, results overwrite inputs that are no longer used."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        sine = y.sin()
        y.copy_(x * 2)
        return operator(sine.exp(), x)

    given = random_tensors((4, 8), (4, 8), dtype=torch.float32, device="cpu")
    expected_inputs, inputs = ([each.clone() for each in given] for _ in range(2))
    expected = function(*expected_inputs)
    torch.compiler.reset()
    backend = FunctionalBackend(fx_passes.default_npu_pipeline())
    with torch.no_grad():
        found = torch.compile(function, backend=backend, fullgraph=True)(*inputs)

    assert_same_values((found, inputs), (expected, expected_inputs))


def test_observer_of_a_write_to_the_result_of_an_unknown_call_is_that_call() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    buffer = graph.call_function(_unknown, (1,))
    write = graph.call_function(vllm.all_reduce.default, (buffer, TWO))
    own = graph.call_function(torch.ops.aten.neg.default, (x,))
    unseen = graph.call_function(vllm.all_reduce.default, (own, TWO))
    graph.output((write, unseen))
    effects = EffectTable()

    assert witness_of_write(write, effects) is buffer
    assert witness_of_write(unseen, effects) is None


def _unknown(number: int) -> None:
    del number


# What libraries of engines define, which arguments their C++ writes, and which it returns.
ENGINE_SCHEMAS = {
    "_C_ascend::npu_causal_conv1d_custom(Tensor output, Tensor x, Tensor weight, Tensor conv_state,"
    " Tensor? bias_opt, Tensor? query_start_loc_opt, Tensor? cache_indices_opt,"
    " Tensor? initial_state_mode_opt, Tensor? num_accepted_tokens_opt, int activation_mode,"
    " int pad_slot_id, int run_mode) -> Tensor": ({"output", "conv_state"}, {"output"}),
    "_C_ascend::npu_reshape_and_cache_bnsd(Tensor q, Tensor k_comp, Tensor slot_mapping,"
    " Tensor seq_len, Tensor k_out) -> Tensor": ({"k_out"}, {"k_out"}),
    "_C_ascend::bgmv_expand(Tensor! x, Tensor! weight, Tensor! indices, Tensor! y,"
    " int slice_offset, int slice_size) -> Tensor": ({"x", "weight", "indices", "y"}, {"y"}),
    "npu::apply_token_bitmask(Tensor logits, Tensor bitmask, Tensor? indices=None) -> Tensor": (
        {"logits"},
        {"logits"},
    ),
    "npu::cache_loc_assign(Tensor req_indices, Tensor token_pool, Tensor start_offset,"
    " Tensor end_offset, Tensor out_cache_loc) -> Tensor": ({"token_pool"}, {"token_pool"}),
    # With arguments of other names, as another version might have.
    "npu::cache_loc_update(Tensor indices, Tensor cache) -> Tensor": ({"indices", "cache"}, set()),
}


@pytest.mark.parametrize("schema", ENGINE_SCHEMAS, ids=lambda each: each.partition("(")[0])
def test_writes_and_results_of_engine_kernels_are_known(schema: str) -> None:
    written, shared = ENGINE_SCHEMAS[schema]
    name, _, signature = schema.partition("(")
    namespace, _, operator = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    try:
        library.define(f"{operator}({signature}")  # type: ignore[no-untyped-call]
        overload = getattr(getattr(torch.ops, namespace), operator).default
        graph = Graph()
        arguments = overload._schema.arguments
        given = [graph.placeholder(each.name) for each in arguments if "Tensor" in str(each.type)]
        effect = EffectTable().of(graph.call_function(overload, tuple(given)))
    finally:
        library._destroy()  # type: ignore[no-untyped-call]

    assert {node.name for node in effect.writes} == written
    assert {node.name for node in effect.aliases} >= shared
    assert not effect.barrier


def test_results_that_overloads_take_as_a_list_are_written() -> None:
    library = torch.library.Library("fx_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    try:
        # As torch_npu declares `npu_fused_infer_attention_score.out`.
        library.define(  # type: ignore[no-untyped-call]
            "attend.out(Tensor query, *, Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)"
        )
        graph = Graph()
        query, workspace, first, second = (graph.placeholder(name) for name in "qwab")
        node = graph.call_function(
            torch.ops.fx_test.attend.out,
            (query,),
            {"workspace": workspace, "out": [first, second]},
        )
        effects = EffectTable()
        assert effects.possible_writers(graph) == [node]
        effect = effects.of(node)
    finally:
        library._destroy()  # type: ignore[no-untyped-call]

    assert set(effect.writes) == {workspace, first, second}
    assert set(effect.aliases) == {workspace, first, second}
    assert effects.hides_writes(node)
    assert not effect.barrier


def test_equal_calls_around_such_a_write_are_not_shared() -> None:
    library = torch.library.Library("fx_test", "FRAGMENT")  # type: ignore[no-untyped-call]

    def fill(value: Tensor, *, out: list[Tensor]) -> Tensor:
        out[0].copy_(value)
        return value.clone()

    try:
        library.define("fill.out(Tensor value, *, Tensor[] out) -> Tensor")  # type: ignore[no-untyped-call]
        library.impl("fill.out", fill, "CPU")  # type: ignore[no-untyped-call]
        buffer, value = torch.full((4,), 2.0), torch.ones(4)

        def step() -> list[Tensor]:
            before = buffer.reciprocal() * 2
            torch.ops.fx_test.fill.out(value, out=[buffer])
            return [before, buffer.reciprocal() * 3]

        call = fx_passes.trace_call(step)
        pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), ShareEqualCallsPass()))
        pipeline.run(call.graph_module)
        buffer.fill_(2.0)
        before, behind = call.run()
    finally:
        library._destroy()  # type: ignore[no-untyped-call]

    assert torch.equal(before, torch.full((4,), 1.0))
    assert torch.equal(behind, torch.full((4,), 3.0))
