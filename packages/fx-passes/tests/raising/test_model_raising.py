"""Unmodified models of transformers, compiled on cann-sim and raised."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import Module, functional
from transformers import AutoConfig, AutoModelForCausalLM

from fx_passes.raising import RaisingReport, RaisingResult, raise_model, raising_pipeline
from fx_passes.testing import capture_graph, random_tensors, tolerance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule

LAYERS = 2
MODELS = ["llama", "mistral", "qwen2", "qwen3", "gemma"]
# Norms of q and k: Qwen3 has them.
NORMS = {"llama": 2 * LAYERS + 1, "mistral": 2 * LAYERS + 1, "qwen2": 2 * LAYERS + 1}
NORMS |= {"qwen3": 4 * LAYERS + 1, "gemma": 2 * LAYERS + 1}


def make_model(kind: str, dtype: torch.dtype, device: str, **settings: object) -> Module:
    """Return a tiny model with random weights, its norms included."""
    config = AutoConfig.for_model(
        kind,
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.1,
        **settings,
    )
    torch.manual_seed(0)
    model: Module = AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.to(dtype).to(device)


def make_tokens(batch: int = 2, length: int = 7) -> Tensor:
    return torch.randint(0, 64, (batch, length), generator=torch.Generator().manual_seed(1))


class RaisingBackend:
    """A backend of torch.compile that raises every graph it gets."""

    def __init__(self) -> None:
        self.results: list[RaisingResult] = []
        self.again: list[RaisingResult] = []
        self.modules: list[GraphModule] = []

    def __call__(
        self, graph_module: GraphModule, example_inputs: Sequence[object]
    ) -> Callable[..., object]:
        del example_inputs
        self.results.append(raise_model(graph_module))
        self.again.append(raise_model(graph_module))
        self.modules.append(graph_module)
        return graph_module.forward

    @property
    def report(self) -> RaisingReport:
        (result,) = self.results
        return result.report


def logits(model: Module, tokens: Tensor) -> Tensor:
    found: Tensor = model(input_ids=tokens, use_cache=False).logits
    return found


def compiled_logits(
    model: Module, tokens: Tensor, *, dynamic: bool = False
) -> tuple[Tensor, RaisingBackend]:
    backend = RaisingBackend()
    torch._dynamo.reset()
    if dynamic:
        torch._dynamo.mark_dynamic(tokens, 0)
        torch._dynamo.mark_dynamic(tokens, 1)
    compiled = torch.compile(
        lambda given: logits(model, given), backend=backend, fullgraph=True, dynamic=None
    )
    with torch.no_grad():
        return compiled(tokens), backend


# Roundings in a row between tokens and logits. In each layer, on the longest way: norm 2,
# projection 1, norm of q 2, RoPE 3, attention 2, projection 1, addition 1; norm 2, projection 1,
# silu 1, product 1, projection 1, addition 1. At the end norm 2 and projection 1.
ROUNDINGS = 19 * LAYERS + 3


def allowed_error(dtype: torch.dtype, exact: Tensor) -> float:
    """Return how far logits may be from those without rounding.

    Roundings of independent signs, each of at most half the machine epsilon, add up like a random
    walk.
    """
    return tolerance_of(dtype, roundings=1) / 2 * math.sqrt(ROUNDINGS) * float(exact.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MODELS)
def test_model_is_raised_completely_with_equal_logits(kind: str, dtype: torch.dtype) -> None:
    model, tokens = make_model(kind, dtype, "cpu"), make_tokens()
    with torch.no_grad():
        plain = logits(model, tokens).double()
        exact = logits(model.double(), tokens)

    raised, backend = compiled_logits(model.to(dtype).to("npu"), tokens.to("npu"))

    report = backend.report
    found = [report.found(each) for each in ("norm", "rope", "activation", "attention")]
    assert found == [NORMS[kind], 2 * LAYERS, LAYERS, LAYERS], str(report)
    assert report.raised() == report.found(), str(report)
    assert not backend.again[0].modified
    error = float((raised.cpu().double() - exact).abs().max())
    plain_error = float((plain - exact).abs().max())
    assert error <= allowed_error(dtype, exact), f"{error}; not raised {plain_error}"


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_raised_model_is_fused_further(kind: str) -> None:
    _, backend = compiled_logits(make_model(kind, torch.bfloat16, "npu"), make_tokens().to("npu"))

    counts = backend.report.passes.match_counts()
    # The first norm has no addition before it.
    assert counts["fuse_add_rms_norm"] == 2 * LAYERS
    targets = [str(node.target) for node in backend.modules[0].graph.nodes]
    assert targets.count("npu.npu_rms_norm.default") == NORMS[kind] - 2 * LAYERS
    assert targets.count("npu.npu_add_rms_norm.default") == 2 * LAYERS
    assert targets.count("npu.npu_rotary_mul.default") == 2 * LAYERS
    assert targets.count("npu.npu_swiglu.default") == LAYERS
    assert targets.count("npu.npu_fused_infer_attention_score.default") == LAYERS
    assert targets.count("aten.logical_not.default") == 1
    left = {"aten.rsqrt.default", "aten.silu.default", "aten.neg.default"}
    assert left.isdisjoint(targets)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_model_of_symbolic_batch_and_length_is_raised_completely(kind: str) -> None:
    # On the NPU torch_npu's attention fixes both sizes while Dynamo traces.
    model = make_model(kind, torch.bfloat16, "meta")

    _, backend = compiled_logits(model, make_tokens().to("meta"), dynamic=True)

    (call, *_) = backend.modules[0].graph.find_nodes(
        op="call_function", target=torch.ops.npu.npu_fused_infer_attention_score.default
    )
    query = call.args[0].meta["val"]
    assert isinstance(query.shape[0], torch.SymInt)
    assert isinstance(query.shape[2], torch.SymInt)
    assert backend.report.raised() == backend.report.found() == NORMS[kind] + 4 * LAYERS
    assert not backend.again[0].modified


def test_graph_of_aten_is_raised_but_for_attention() -> None:
    model = make_model("llama", torch.bfloat16, "meta")

    def function(tokens: Tensor) -> Tensor:
        return logits(model, tokens)

    module = capture_graph(function, [make_tokens().to("meta")], level="aten")

    report = raise_model(module).report

    for kind in ("norm", "rope", "activation"):
        assert report.raised(kind) == report.found(kind) > 0
    assert [site.kind for site in report.left()] == ["attention"] * LAYERS


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_eager_attention_is_raised_with_equal_logits(kind: str) -> None:
    model, tokens = (
        make_model(kind, torch.bfloat16, "cpu", attn_implementation="eager"),
        make_tokens(),
    )
    with torch.no_grad():
        exact = logits(model.double(), tokens)

    raised, backend = compiled_logits(model.to(torch.bfloat16).to("npu"), tokens.to("npu"))

    assert backend.report.raised() == backend.report.found(), str(backend.report)
    error = float((raised.cpu().double() - exact).abs().max())
    assert error <= allowed_error(torch.bfloat16, exact)


def test_rule_left_out_leaves_its_places_with_a_reason() -> None:
    def function(x: Tensor, up: Tensor) -> Tensor:
        return functional.silu(x) * up

    module = capture_graph(function, random_tensors((6, 16), (6, 16)))

    result = raise_model(module, raising_pipeline().without("raise_swiglu"))

    (site,) = result.report.left("activation")
    known = "silu(gate) * up or gelu(gate) * up"
    assert site.reason == (
        f"no rule knows this spelling of activation by `silu` (aten.silu.default); known is {known}"
    )


def test_report_names_the_near_miss_of_the_place_itself() -> None:
    def norm(x: Tensor, weight: Tensor, dim: int) -> Tensor:
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(dim, keepdim=True)
        return weight * (wide * torch.rsqrt(variance + 1e-6)).to(x.dtype)

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return norm(norm(norm(x, weight, -1), weight, 0), weight, 1)

    module = capture_graph(function, random_tensors((4, 16, 16), (16,)))

    report = raise_model(module).report

    assert [site.raised for site in report.sites] == [True, False, False]
    reasons = [site.reason for site in report.left()]
    assert "the mean is over the dimensions [0] of 3" in reasons[0]
    assert "the mean is over the dimensions [1] of 3" in reasons[1]


def test_report_is_data_and_text() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        normed = weight * (wide * torch.rsqrt(variance + 1e-6)).to(x.dtype)
        return functional.silu(normed) * normed[:1]

    module = capture_graph(function, random_tensors((4, 16), (16,)))

    report = raise_model(module).report

    data = json.loads(json.dumps(asdict(report)))

    assert len(data["sites"]) == report.found()
    assert data["sites"][0]["kind"] == "norm"
    lines = str(report).splitlines()
    assert lines[0] == "norm: 1 of 1 raised"
    assert "activation: 0 of 1 raised" in lines
    assert any(line.startswith("  - silu") and "does not broadcast" in line for line in lines)
