"""Attention without a paged cache, as models write it, and what the kernel does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_passes
from fx_passes.generic_passes import ShareEqualCallsPass
from fx_passes.raising import raise_attention
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
attention = functional.scaled_dot_product_attention
QUERY, KEY = (2, 4, 7, 16), (2, 2, 7, 16)


def pipeline() -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="raise", rules=raise_attention())
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
        (additive, "which is added to the scores; the kernel takes bool"),
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
