"""Defects that pass managers of engines were seen to have, one test each that ours has none.

Left out are those that other tests show under a name of their own: literals that were compared
instead of bound (`test_matcher_hazards.py`), shapes in patterns (`test_replacement_rule.py`),
failures and loops (`test_bad_input.py`).
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
from fusions.attention_heads import AttentionHeads, qkv_function, qkv_inputs
from fusions.reference_pipeline import reference_pipeline
from torch import Tensor

import fx_passes
from fx_passes.inductor import PostGradPasses
from fx_passes.testing import assert_rewritten, capture_graph, random_tensors

if TYPE_CHECKING:
    from torch.fx import GraphModule

npu = torch.ops.npu
QKV, NORM = "fuse_split_qkv_rms_norm_rope", "fuse_add_rms_norm"


def norm_graph(dtype: torch.dtype = torch.bfloat16, tokens: int = 6, size: int = 64) -> GraphModule:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = npu.npu_rms_norm(x + residual, weight, 1e-5)[0]
        return out

    shapes = ((tokens, size), (tokens, size), (size,))
    return capture_graph(function, random_tensors(*shapes, dtype=dtype))


def qkv_graph(heads: AttentionHeads, tokens: int = 5) -> GraphModule:
    return capture_graph(qkv_function(heads), qkv_inputs(heads, tokens))


def test_second_manager_in_a_process_has_all_patterns() -> None:
    """vLLM-Ascend kept a global set of registered patterns; the second manager got none."""
    for _ in range(2):
        passes = PostGradPasses()
        module = norm_graph()
        passes(module)
        assert passes.results
        assert passes.report.match_counts()[NORM] == 1


def test_model_of_other_head_size_in_one_process_is_fused_with_its_own_sizes() -> None:
    """A draft model got the split sizes of its target: `Split sizes 6144 vs 4096`."""
    target = AttentionHeads(num_heads=8, num_kv_heads=2, head_dim=32)
    draft = AttentionHeads(num_heads=4, num_kv_heads=4, head_dim=16)
    pipeline = reference_pipeline()
    for heads in (target, draft, target):
        module = qkv_graph(heads)
        assert_rewritten(pipeline, module, {QKV: 1})
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        fused = next(node for node in calls if "qkv" in str(node.target))
        sizes = (heads.num_heads, heads.num_kv_heads, heads.head_dim)
        assert [each for each in fused.args if type(each) is int] == list(sizes)


def test_model_with_layers_of_different_heads_is_fused_in_every_layer() -> None:
    """The sizes came from the first attention layer, so others were never or wrongly matched."""
    layers = [AttentionHeads(), AttentionHeads(num_heads=8, num_kv_heads=1, head_dim=32)]
    inputs = [qkv_inputs(heads) for heads in layers]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        first = qkv_function(layers[0])(*tensors[:5])
        return (*first, *qkv_function(layers[1])(*tensors[5:]))

    module = capture_graph(function, [*inputs[0], *inputs[1]])

    assert_rewritten(reference_pipeline(), module, {QKV: 2})


@pytest.mark.parametrize("tokens", [1, 5, 64])
def test_one_pipeline_serves_every_batch_size(tokens: int) -> None:
    """SGLang's pass had the batch size in its shapes and needed an instance for each."""
    assert_rewritten(reference_pipeline(), qkv_graph(AttentionHeads(), tokens), {QKV: 1})


@pytest.mark.parametrize("head_dim", [16, 64, 96, 128, 256])
def test_no_head_size_is_built_in(head_dim: int) -> None:
    """SGLang's pass hard-coded 64, which is half of 128, in its replacement."""
    heads = AttentionHeads(head_dim=head_dim)
    assert_rewritten(reference_pipeline(), qkv_graph(heads), {QKV: 1})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fusions_are_not_off_for_one_dtype(dtype: torch.dtype) -> None:
    """SGLang's passes ran for bfloat16 only, and nothing said so."""
    assert_rewritten(fx_passes.default_npu_pipeline(), norm_graph(dtype), {NORM: 1})


def test_pass_that_fails_is_not_swallowed() -> None:
    """SGLang's manager caught and logged every exception: a fusion was lost silently."""

    def broken(graph_module: GraphModule) -> bool:
        raise LookupError(str(len(graph_module.graph.nodes)))

    broken_pass = fx_passes.FunctionPass(name="broken", function=broken)
    pipeline = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), broken_pass))

    with pytest.raises(fx_passes.PassError, match=r"'broken'.*passes run before it: normalize"):
        pipeline.run(norm_graph())


def test_number_of_matches_is_known_and_so_is_a_rule_that_found_nothing() -> None:
    report = fx_passes.default_npu_pipeline().run(norm_graph()).report

    assert report.match_counts()[NORM] == 1
    assert report.match_counts()[QKV] == 0
    assert set(report.match_counts()) <= set(fx_passes.default_npu_pipeline().names())


def test_importing_changes_nothing_in_torch_and_registers_nothing() -> None:
    """Importing the seed replaced parts of `torch.cuda` and switches of Dynamo."""
    program = (
        "import torch, torch._inductor.config as i, torch._dynamo.config as d\n"
        "before = (dict(vars(torch.cuda)), i.save_config_portable(), d.save_config_portable())\n"
        "import fx_passes, fx_passes.inductor, fx_passes.functional\n"
        "after = (dict(vars(torch.cuda)), i.save_config_portable(), d.save_config_portable())\n"
        "assert before[0] == after[0] and before[1:] == after[1:]\n"
        "assert not hasattr(torch.ops.fx_passes, 'split_qkv_rms_norm_rope')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rules_and_passes_hold_no_state_that_a_run_could_change() -> None:
    """Seeds kept `.instance`, streams and tables in class attributes, so two models collided."""
    pipeline = fx_passes.default_npu_pipeline()
    before = pipeline.hash()
    pipeline.run(qkv_graph(AttentionHeads()))

    assert pipeline.hash() == before == fx_passes.default_npu_pipeline().hash()
    for each in pipeline.passes:
        with pytest.raises(dataclasses.FrozenInstanceError):
            each.name = "other"  # type: ignore[misc]


def test_two_models_compiled_at_once_get_each_their_own() -> None:
    heads = [AttentionHeads(), AttentionHeads(num_heads=8, num_kv_heads=4, head_dim=32)]
    modules = [qkv_graph(heads[number % 2]) for number in range(12)]

    def compile_one(module: GraphModule) -> str:
        # A pipeline of its own in every thread, as when each model builds one.
        fx_passes.default_npu_pipeline().run(module)
        return str(module.graph)

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(compile_one, modules))

    assert len(set(texts[0::2])) == len(set(texts[1::2])) == 1
    assert texts[0] != texts[1]


def test_key_for_caches_follows_rules_switches_and_versions() -> None:
    """vLLM-Ascend's manager had no uuid, so stale code was loaded after a pass had changed."""
    key = PostGradPasses().uuid()
    other = fx_passes.default_npu_pipeline().without(NORM)

    assert PostGradPasses().uuid() == key
    assert PostGradPasses(other).uuid() != key
    selection = fx_passes.PassSelection(disabled=(NORM,))
    assert PostGradPasses(selection=selection).uuid() != key


def test_key_for_caches_follows_the_version_of_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    key = fx_passes.default_npu_pipeline().hash()
    monkeypatch.setattr("fx_passes.pipeline.metadata.version", lambda name: f"other {name}")

    assert fx_passes.default_npu_pipeline().hash() != key


def test_switch_of_a_fusion_is_named_and_an_unknown_one_refused() -> None:
    """Switches were keys of a dict; a wrong one had no effect and no message."""
    passes = PostGradPasses()
    passes.configure({"disabled": (NORM,)})
    module = norm_graph()
    passes(module)
    assert passes.results
    assert NORM not in passes.report.match_counts()

    with pytest.raises(fx_passes.PipelineError, match=f"near: {NORM}"):
        passes.configure({"disabled": ("fuse_add_rms_nrm",)})


def test_range_of_sizes_decides_for_each_graph() -> None:
    selection = fx_passes.PassSelection(ranges=((NORM, fx_passes.TokenRange(start=512)),))
    for start, end, expected in ((1, 256, 0), (512, 1024, 1)):
        sizes = fx_passes.TokenRange(start=start, end=end)
        passes = PostGradPasses(selection=selection, tokens=lambda sizes=sizes: sizes)  # type: ignore[misc]
        passes(norm_graph())
        assert passes.results
        assert passes.report.match_counts().get(NORM, 0) == expected
