"""Attention without a paged cache, as models write it, and the limits of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_passes
from fx_passes.generic_passes import ShareEqualCallsPass
from fx_passes.raising import (
    raise_attention,
    raise_model,
    raise_sink_attention,
    spelt_attention,
)
from fx_passes.testing import (
    assert_left_alone,
    assert_rewritten,
    assert_same_values,
    capture_graph,
    random_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

RULE = "raise_attention"
SPELT = "spelt_attention"
attention = functional.scaled_dot_product_attention
QUERY, KEY = (2, 4, 7, 16), (2, 2, 7, 16)


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(
        name="raise", rules=(raise_sink_attention(), spelt_attention(), raise_attention())
    )
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules, ShareEqualCallsPass()))


def causal_mask(device: str, queries: int = 7, keys: int = 7) -> Tensor:
    """Return a bool mask that is True where a query may look."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).to(device)


def repeat_kv(x: Tensor, times: int) -> Tensor:
    batch, heads, length, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, length, size)
    return x.reshape(batch, heads * times, length, size)


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention(
        query, repeat_kv(key, 2), repeat_kv(value, 2), attn_mask=mask[None, None], scale=0.3
    )


def causal(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    del mask
    return attention(query, key, value, is_causal=True, enable_gqa=True)


def seeing_all(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    del mask
    return attention(query, repeat_kv(key, 2), repeat_kv(value, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [masked, causal, seeing_all])
@pytest.mark.parametrize("keys", [7, 12])
def test_attention_of_every_form_is_raised_with_equal_values(
    dtype: torch.dtype, function: Callable[..., Tensor], keys: int
) -> None:
    shapes = (QUERY, (2, 2, keys, 16), (2, 2, keys, 16))
    plain = [*random_tensors(*shapes, dtype=dtype, device="cpu"), causal_mask("cpu", keys=keys)]
    # torch_npu's own attention is not simulated, so the reference is the CPU's in float32.
    wide = [each.float() if each.is_floating_point() else each for each in plain]
    expected = function(*wide).to(dtype)

    def backend(graph_module: GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        del inputs
        assert_rewritten(pipeline(), graph_module, {RULE: 1})
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        raised = torch.compile(function, backend=backend)(*[each.to("npu") for each in plain])

    assert_same_values(raised.cpu(), expected, roundings=2)


def added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask that is added to the scores."""
    return torch.where(seen, torch.zeros((), device=seen.device, dtype=dtype), -1e9)


def spelt(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, wide: bool = False) -> Tensor:
    """As `attn_implementation="eager"` of transformers."""
    key, value = repeat_kv(key, 2), repeat_kv(value, 2)
    hidden = added(mask[None, None], query.dtype)
    if wide:
        query, key = query.float(), key.float()
    scores = torch.matmul(query, key.transpose(2, 3)) * 0.3 + hidden
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(functional.dropout(weights, p=0.1, training=False), value)


def spelt_in_float32(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return spelt(query, key, value, mask, wide=True)


def divided_scores(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    del mask
    scores = query @ repeat_kv(key, 2).transpose(-1, -2) / 4
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


def less_the_largest(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """MiMo."""
    scores = query @ repeat_kv(key, 2).transpose(2, 3) * 0.3 + added(mask, query.dtype)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


def narrower_values(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """DeepSeek V3."""
    return attention(query, key, value[..., :8], attn_mask=mask[None, None], enable_gqa=True)


def one_head_of_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Falcon."""
    return attention(query, key[:, :1], value[:, :1], attn_mask=mask[None, None])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("function", "spellings"),
    [
        (spelt, 1),
        (spelt_in_float32, 1),
        (divided_scores, 1),
        (less_the_largest, 1),
        (narrower_values, 0),
        (one_head_of_keys, 0),
    ],
)
def test_attention_of_every_spelling_is_raised_with_equal_values(
    dtype: torch.dtype, function: Callable[..., Tensor], spellings: int
) -> None:
    plain = [*random_tensors(QUERY, KEY, KEY, dtype=dtype, device="cpu"), causal_mask("cpu")]
    wide = [each.float() if each.is_floating_point() else each for each in plain]
    expected = function(*wide).to(dtype)

    def backend(graph_module: GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        del inputs
        assert_rewritten(pipeline(), graph_module, {SPELT: spellings, RULE: 1})
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        raised = torch.compile(function, backend=backend)(*[each.to("npu") for each in plain])

    assert_same_values(raised.cpu(), expected, roundings=2)


@pytest.mark.parametrize("less_the_largest", [True, False])
def test_attention_with_sinks_is_raised_with_equal_values(less_the_largest: bool) -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor) -> Tensor:
        """GPT-OSS."""
        hidden = added(mask[None, None], query.dtype)
        scores = torch.matmul(query, repeat_kv(key, 2).transpose(2, 3)) * 0.3
        scores = scores + hidden
        column = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, query.shape[-2], -1)
        both = torch.cat([scores, column], dim=-1)
        if less_the_largest:
            both = both - both.max(dim=-1, keepdim=True).values
        weights = functional.softmax(both, dim=-1, dtype=both.dtype)[..., :-1]
        return torch.matmul(weights.to(value.dtype), repeat_kv(value, 2))

    plain = [*random_tensors(QUERY, KEY, KEY, device="cpu"), causal_mask("cpu")]
    sinks = torch.tensor([2.0, -1.0, 0.5, 3.0], dtype=torch.bfloat16)
    wide = [each.float() if each.is_floating_point() else each for each in (*plain, sinks)]
    expected = function(*wide).to(torch.bfloat16)

    def backend(graph_module: GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        del inputs
        assert_rewritten(pipeline(), graph_module, {"raise_sink_attention": 1})
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        raised = torch.compile(function, backend=backend)(
            *[each.to("npu") for each in (*plain, sinks)]
        )

    assert_same_values(raised.cpu(), expected, roundings=2)


def test_attention_times_the_share_of_keys_is_raised_with_equal_values() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor) -> Tensor:
        """Granite with sliding windows."""
        scores = torch.matmul(query, repeat_kv(key, 2).transpose(2, 3)) * 0.3
        scores = scores + added(mask[None, None], query.dtype)
        above = torch.logsumexp(scores, dim=-1) - sinks.view(1, -1, 1)
        share = torch.sigmoid(above.to(torch.float32))
        weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        weights = functional.dropout(weights, p=0.1, training=False)
        summed = torch.matmul(weights, repeat_kv(value, 2))
        return summed * share.unsqueeze(-1).to(query.dtype)

    plain = [*random_tensors(QUERY, KEY, KEY, device="cpu"), causal_mask("cpu")]
    sinks = torch.tensor([2.0, -1.0, 0.5, 3.0], dtype=torch.bfloat16)
    wide = [each.float() if each.is_floating_point() else each for each in (*plain, sinks)]
    expected = function(*wide).to(torch.bfloat16)

    def backend(graph_module: GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        del inputs
        assert_rewritten(pipeline(), graph_module, {"raise_sink_attention": 1})
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        raised = torch.compile(function, backend=backend)(
            *[each.to("npu") for each in (*plain, sinks)]
        )

    assert_same_values(raised.cpu(), expected, roundings=2)


def capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Gemma 2."""
    del mask
    scores = torch.tanh(query @ repeat_kv(key, 2).transpose(2, 3) / 50) * 50
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


def filled(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = (query @ repeat_kv(key, 2).transpose(2, 3)).masked_fill(~mask, -1e9)
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


@pytest.mark.parametrize(
    ("function", "reason"),
    [(capped, "the scores are capped by tanh"), (filled, "the scores are filled where")],
)
def test_report_says_what_spelt_attention_has(function: Callable[..., Tensor], reason: str) -> None:
    module = capture_graph(function, [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")])

    (site,) = raise_model(module).report.left("attention")

    assert reason in site.reason


def dropped_weights(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    del mask
    weights = functional.softmax(query @ repeat_kv(key, 2).transpose(2, 3), dim=-1)
    return functional.dropout(weights, p=0.1, training=True) @ repeat_kv(value, 2)


def softmax_over_queries(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    del mask
    scores = query @ repeat_kv(key, 2).transpose(2, 3)
    return functional.softmax(scores, dim=-2) @ repeat_kv(value, 2)


def biased(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ repeat_kv(key, 2).transpose(2, 3) + mask.to(query.dtype)
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


def written_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    hidden = added(mask, query.dtype)
    hidden[0] += 1.0
    scores = query @ repeat_kv(key, 2).transpose(2, 3) + hidden
    return functional.softmax(scores, dim=-1) @ repeat_kv(value, 2)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (dropped_weights, "weights are dropped with probability 0.1"),
        (softmax_over_queries, "the softmax is over dimension -2, not the last one"),
        (biased, "is added to the scores; the kernel takes bool"),
        (written_mask, "is added to the scores; the kernel takes bool"),
    ],
)
def test_near_attention_is_left_alone(function: Callable[..., Tensor], reason: str) -> None:
    module = capture_graph(function, [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")])

    assert_left_alone(pipeline(), module, SPELT, reason)


def test_decoding_with_a_mask_is_raised_with_equal_values() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return attention(query, repeat_kv(key, 2), repeat_kv(value, 2), attn_mask=mask)

    plain = random_tensors((2, 4, 1, 16), KEY, KEY, device="cpu")
    mask = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])[:, None, None]
    query, key, value = [each.float() for each in plain]
    expected = function(query, key, value, mask).to(torch.bfloat16)

    def backend(graph_module: GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        del inputs
        assert_rewritten(pipeline(), graph_module, {RULE: 1})
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        raised = torch.compile(function, backend=backend)(
            *[each.to("npu") for each in (*plain, mask)]
        )

    assert_same_values(raised.cpu(), expected, roundings=2)


def test_mask_of_two_dimensions_over_one_query_is_left_alone() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return attention(query, key, value, attn_mask=mask, enable_gqa=True)

    tensors = [*random_tensors((2, 4, 1, 16), KEY, KEY), causal_mask("meta", queries=1)]
    module = capture_graph(function, tensors)

    assert_left_alone(pipeline(), module, RULE, "reads as one row a batch")


def test_grouped_keys_are_not_repeated_any_more() -> None:
    tensors = [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")]
    module = capture_graph(masked, tensors)

    assert_rewritten(pipeline(), module, {RULE: 1})

    called = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.expand.default not in called
    assert torch.ops.aten.reshape.default not in called


def test_symbolic_batch_and_length_are_raised() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, repeat_kv(key, 2), repeat_kv(value, 2), is_causal=True)

    tensors = random_tensors(QUERY, KEY, KEY)
    for tensor in tensors:
        torch._dynamo.mark_dynamic(tensor, 0)
        torch._dynamo.mark_dynamic(tensor, 2)
    module = capture_graph(function, tensors)

    assert_rewritten(pipeline(), module, {RULE: 1})

    (call,) = module.graph.find_nodes(
        op="call_function", target=torch.ops.npu.npu_fused_infer_attention_score.default
    )
    assert isinstance(call.args[0].meta["val"].shape[2], torch.SymInt)


@pytest.mark.parametrize("causal_flag", [True, False])
def test_two_attentions_share_one_mask(causal_flag: bool) -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        given = None if causal_flag else mask
        first = attention(query, key, value, given, is_causal=causal_flag, enable_gqa=True)
        return first, attention(first, key, value, given, is_causal=causal_flag, enable_gqa=True)

    module = capture_graph(function, [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")])

    assert_rewritten(pipeline(), module, {RULE: 2})

    names = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    expected = ["aten.ones.default", "aten.triu.default"] if causal_flag else []
    expected += [] if causal_flag else ["aten.logical_not.default"]
    assert [name for name in names if name.startswith("aten.")] == expected


def test_mask_that_is_written_between_is_not_shared() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        mask = mask.clone()
        first = attention(query, key, value, mask, enable_gqa=True)
        mask.fill_(True)
        return first, attention(first, key, value, mask, enable_gqa=True)

    module = capture_graph(function, [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")])

    assert_rewritten(pipeline(), module, {RULE: 2})

    inverted = module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.logical_not.default
    )
    assert len(inverted) == 2


def additive(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention(query, key, value, mask.to(query.dtype), enable_gqa=True)


def dropping(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention(query, key, value, mask, dropout_p=0.1, enable_gqa=True)


def one_mask_a_head(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention(query, key, value, mask.expand(2, 4, 7, 7), enable_gqa=True)


def interleaved_heads(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    # Head i of the keys goes to the queries i and i + 2, not to 2 i and 2 i + 1.
    key = key.unsqueeze(2).expand(2, 2, 2, 7, 16).transpose(1, 2).reshape(QUERY)
    return attention(query, key, value, mask, enable_gqa=True)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (additive, "is added to the scores; the kernel takes bool"),
        (dropping, "dropout_p is 0.1"),
        (one_mask_a_head, "`mask` has shape [2, 4, 7, 7]"),
        (interleaved_heads, "`key` has shape [2, 4, 7, 16] and `value` [2, 2, 7, 16]"),
    ],
)
def test_attention_that_the_kernel_does_not_take_is_left_alone(
    function: Callable[..., Tensor], reason: str
) -> None:
    module = capture_graph(function, [*random_tensors(QUERY, KEY, KEY), causal_mask("meta")])

    assert_left_alone(pipeline(), module, RULE, reason)


def test_head_of_odd_size_is_left_alone() -> None:
    module = capture_graph(attention, random_tensors((2, 4, 7, 12), (2, 4, 7, 12), (2, 4, 7, 12)))

    assert_left_alone(pipeline(), module, RULE, "heads of 12")


def test_causal_attention_of_one_query_is_left_alone() -> None:
    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, is_causal=True, enable_gqa=True)

    module = capture_graph(function, random_tensors((2, 4, 1, 16), KEY, KEY))

    assert_left_alone(pipeline(), module, RULE, "sees the first key only")


def test_attention_in_float32_is_left_alone() -> None:
    tensors = random_tensors(QUERY, QUERY, QUERY, dtype=torch.float32)
    module = capture_graph(attention, tensors)

    assert_left_alone(pipeline(), module, RULE, "`query` has dtype torch.float32")
