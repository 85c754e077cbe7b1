"""Options of other engines, under their own names."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fx_passes
from npu_compile import CompileConfig, ConfigError
from npu_compile.configuration.option_aliases import OPTION_ALIASES
from npu_compile_command import run_command

README = Path(__file__).parents[1] / "README.md"
SPLIT = {"splitting_ops": ["my::attention"]}
FULL = {"mode": "full"}

# What another engine writes, and what that is here.
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"compiler": "eager"}, {"mode": "eager"}),
    ({"compiler": "npugraph", "capture_sizes": [4]}, {"mode": "full", "capture_sizes": [4]}),
    (
        {"compiler": "piecewise", "splitting_ops": ["atb._npu_paged_attention"]},
        {"mode": "piecewise", "splitting_ops": ["atb::_npu_paged_attention"]},
    ),
    ({"compiler": "npugraph_ex"}, {"mode": "torchair", "inner_compiler": "npugraph_ex"}),
    ({"compiler": "eager", "enable_debug_mode": True}, {"address_check": "always"}),
    ({"enable_debug_mode": False}, {}),
    ({"cudagraph_mode": "NONE"}, {"mode": "eager"}),
    ({"cudagraph_mode": "PIECEWISE", **SPLIT}, {"mode": "piecewise", **SPLIT}),
    ({"cudagraph_mode": "FULL"}, {"mode": "full"}),
    (
        {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [2, 1]},
        {"mode": "full", "capture_sizes": [1, 2], "prefill_capture_sizes": [1, 2]},
    ),
    (
        {"cudagraph_capture_sizes": [2, 1], "prefill_capture_sizes": [64], "mode": "full"},
        {"mode": "full", "capture_sizes": [1, 2], "prefill_capture_sizes": [64]},
    ),
    ({"cudagraph_mode": "FULL_DECODE_ONLY"}, {"mode": "full"}),
    ({"cudagraph_mode": "full_decode_only"}, {"mode": "full"}),
    (
        {"cudagraph_mode": "FULL_AND_PIECEWISE", **SPLIT},
        {"mode": "full_decode_and_piecewise", **SPLIT},
    ),
    (
        {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [2, 1]},
        {"mode": "full", "capture_sizes": [1, 2]},
    ),
    ({"cuda_graph_bs": [1, 8]}, {"mode": "full", "capture_sizes": [1, 8]}),
    (
        {"splitting_ops": ["my::attention"], "cuda_graph_bs": [1]},
        {"mode": "full", "capture_sizes": [1], **SPLIT},
    ),
    ({"splitting_ops": ["my::attention"], "mode": "eager"}, {"mode": "eager", **SPLIT}),
    ({"splitting_ops": []}, {}),
    (
        {"cuda_graph_bs": [1, 4, 64], "cuda_graph_max_bs": 8},
        {"mode": "full", "capture_sizes": [1, 4]},
    ),
    (
        {"enable_torch_compile": True, "enable_piecewise_npu_graph_decode": True},
        {"mode": "piecewise", "splitting_ops": ["atb::_npu_paged_attention"]},
    ),
    ({"enable_torch_compile": False, "enable_piecewise_npu_graph_decode": False}, {}),
    ({"enable_torch_npugraph_ex_compile": False, "enable_piecewise_cuda_graph": False}, {}),
    (
        {"additional_config": {"ascend_compilation_config": {"enable_graph_rewrite": True}}},
        {"fuse": True},
    ),
    ({"piecewise_cuda_graph_tokens": [64]}, {"prefill_capture_sizes": [64]}),
    ({"disable_cuda_graph": True, "cuda_graph_bs": [1]}, {"mode": "eager", "capture_sizes": [1]}),
    ({"disable_cuda_graph": False, "mode": "full"}, {"mode": "full"}),
    # Said twice, and the same.
    ({"mode": "full", "compiler": "npugraph"}, {"mode": "full"}),
    (
        {"capture_sizes": (1, 2), "cuda_graph_bs": [1, 2]},
        {"mode": "full", "capture_sizes": [1, 2]},
    ),
]


class SeedForm(NamedTuple):
    """One form of the options in the changes proposed to SGLang and vLLM-Ascend.

    Attributes:
        change: the proposal.
        options: the options as a JSON object.
        flags: the options as command line flags.
        ours: the equivalent here, or the error message.
    """

    change: str
    options: dict[str, Any]
    flags: str
    ours: dict[str, Any] | str


PAGED: dict[str, Any] = {"mode": "piecewise", "splitting_ops": ["atb::_npu_paged_attention"]}
PREFILL: dict[str, Any] = {
    "mode": "full_decode_and_piecewise",
    "splitting_ops": [
        "sglang::unified_attention_with_output",
        "sglang::unified_linear_attention_with_output",
        "sglang::gdn_with_output",
        "sglang::inplace_all_reduce",
    ],
    "allow_absent": True,
}
SEED_FORMS = [
    SeedForm("SGLang 15332", {"enable_torch_compile": True}, "--enable-torch-compile", FULL),
    SeedForm(
        "SGLang 15332",
        {"compiler": "npugraph"},
        """--compilation-config '{"compiler": "npugraph"}'""",
        FULL,
    ),
    SeedForm(
        "SGLang 15332",
        {"enable_piecewise_npu_graph_decode": True},
        "--enable-piecewise-npu-graph-decode",
        PAGED,
    ),
    SeedForm(
        "SGLang 15332",
        {"compiler": "piecewise", "splitting_ops": ["atb._npu_paged_attention"]},
        "--compilation-config "
        """'{"compiler": "piecewise", "splitting_ops": ["atb._npu_paged_attention"]}'""",
        PAGED,
    ),
    SeedForm(
        "SGLang 15332",
        {"compiler": "piecewise"},
        """--compilation-config '{"compiler": "piecewise"}'""",
        PAGED,
    ),
    SeedForm(
        "SGLang 15332",
        {"splitting_ops": ["atb._npu_paged_attention"]},
        """--compilation-config '{"splitting_ops": ["atb._npu_paged_attention"]}'""",
        PAGED,
    ),
    SeedForm(
        "SGLang 15332",
        {"enable_torch_npugraph_ex_compile": True},
        "--enable-torch-npugraph-ex-compile",
        {"mode": "torchair"},
    ),
    SeedForm(
        "SGLang 15332",
        {"compiler": "npugraph_ex"},
        """--compilation-config '{"compiler": "npugraph_ex"}'""",
        {"mode": "torchair"},
    ),
    SeedForm(
        "SGLang 15332",
        {"enable_torch_compile": True, "torch_compile_max_bs": 32},
        "--enable-torch-compile --torch-compile-max-bs 32",
        "torch_compile_max_bs is 32, but one compilation serves all batch sizes here",
    ),
    SeedForm(
        "SGLang 15332",
        {"enable_piecewise_npu_graph_decode": True, "cuda_graph_bs": [1, 2, 4]},
        "--enable-piecewise-npu-graph-decode --cuda-graph-bs 1 2 4",
        {**PAGED, "capture_sizes": [1, 2, 4]},
    ),
    SeedForm(
        "SGLang 15332",
        {"enable_torch_compile": True, "cuda_graph_max_bs": 13},
        "--enable-torch-compile --cuda-graph-max-bs 13",
        {**FULL, "capture_sizes": [1, 2, 4, 8, 12, 13]},
    ),
    SeedForm(
        "SGLang 12287",
        {"enable_piecewise_cuda_graph": True},
        "--enable-piecewise-cuda-graph",
        PREFILL,
    ),
    SeedForm(
        "SGLang 12287",
        {"enable_piecewise_cuda_graph": True, "piecewise_cuda_graph_compiler": "eager"},
        "--enable-piecewise-cuda-graph --piecewise-cuda-graph-compiler eager",
        PREFILL,
    ),
    SeedForm(
        "SGLang 12287",
        {"enable_piecewise_cuda_graph": True, "piecewise_cuda_graph_compiler": "inductor"},
        "--enable-piecewise-cuda-graph --piecewise-cuda-graph-compiler inductor",
        "piecewise_cuda_graph_compiler is 'inductor', expected 'eager'",
    ),
    SeedForm(
        "SGLang 12287",
        {"enable_piecewise_cuda_graph": True, "piecewise_cuda_graph_tokens": [64]},
        "--enable-piecewise-cuda-graph --piecewise-cuda-graph-tokens 64",
        {**PREFILL, "prefill_capture_sizes": [64]},
    ),
    SeedForm(
        "SGLang 12287",
        {"enable_piecewise_cuda_graph": True, "piecewise_cuda_graph_max_tokens": 10},
        "--enable-piecewise-cuda-graph --piecewise-cuda-graph-max-tokens 10",
        {**PREFILL, "prefill_capture_sizes": [4, 8, 10]},
    ),
    SeedForm(
        "SGLang 9399", {"disable_cuda_graph": True}, "--disable-cuda-graph", {"mode": "eager"}
    ),
    SeedForm(
        "vLLM-Ascend 2389",
        {"ascend_compilation_config": {"enable_graph_rewrite": False}},
        """--additional-config '{"ascend_compilation_config": {"enable_graph_rewrite": false}}'""",
        {"fuse": False},
    ),
    SeedForm(
        "vLLM-Ascend 2389",
        {"ascend_compilation_config": {"enable_quantization_fusion": False}},
        "--additional-config "
        """'{"ascend_compilation_config": {"enable_quantization_fusion": false}}'""",
        {
            "disabled_fusions": sorted(
                rule for rule in fx_passes.default_npu_pipeline().names() if "quant" in rule
            )
        },
    ),
]


def named_in(options: dict[str, Any]) -> set[str]:
    inner = [value for value in options.values() if isinstance(value, dict)]
    return {*options}.union(*map(named_in, inner))


@pytest.mark.parametrize("form", SEED_FORMS, ids=lambda form: form.flags)
@pytest.mark.parametrize("as_flags", [False, True], ids=["json", "flags"])
def test_option_form_of_a_seed_is_taken_or_refused(
    form: SeedForm, as_flags: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(form.flags) if as_flags else [json.dumps(form.options)]
    status = run_command(["config", *words])
    printed = capsys.readouterr()

    if isinstance(form.ours, str):
        assert status == 1
        assert form.ours in printed.err
    else:
        assert status == 0, printed.err
        assert CompileConfig.from_json(printed.out) == CompileConfig.from_mapping(form.ours)


def test_option_forms_of_seeds_are_in_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs/how-to/migrate.md").read_text()
    for form in SEED_FORMS:
        assert f"| {form.change} | `{form.flags}` |" in guide, form.flags


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("full --mode", "expected a flag such as --mode, found 'full'"),
        ("--mode full --mode eager", "--mode is given twice"),
        ("--mode", "mode is True; known"),
        ("--enable-torch-compil", "unknown key 'enable_torch_compil'; did you mean"),
        ("--cuda-graph-max-bs 0", "cuda_graph_max_bs must be whole and at least 1, found 0"),
        ("--cuda-graph-bs 8 --cuda-graph-max-bs 4", "the smallest of capture_sizes is 8"),
        ("--compilation-config piecewise", "compilation_config is not valid JSON"),
        ("--compilation-config 3", "compilation_config must be a mapping, found 3"),
        ("""--additional-config '{"a": 1}'""", "unknown key 'a' of additional_config; known"),
        (
            """--cuda-graph-bs 1 --compilation-config '{"cuda_graph_bs": [2]}'""",
            "cuda_graph_bs is [1] and [2]; give it once",
        ),
        ("--enable-torch-compile --disable-cuda-graph --cuda-graph-bs 1 --mode full", "give one"),
    ],
)
def test_flags_that_cannot_be_meant_are_an_error(flags: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CompileConfig.from_flags(shlex.split(flags))
    assert message in str(caught.value)


@pytest.mark.parametrize(("theirs", "ours"), SAME, ids=json.dumps)
def test_option_of_another_engine_is_ours(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert CompileConfig.from_mapping(theirs) == CompileConfig.from_mapping(ours)
    assert CompileConfig.from_json(json.dumps(theirs)) == CompileConfig.from_mapping(ours)


def test_every_option_is_tried_and_is_in_the_table_of_the_readme() -> None:
    tried = {name for theirs, _ in SAME for name in theirs}
    tried |= {name for form in SEED_FORMS for name in named_in(form.options)}
    assert OPTION_ALIASES.keys() <= tried
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    for name in OPTION_ALIASES:
        assert any(row.startswith(f"| `{name}`") for row in rows), name


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"compiler": "piecewize"}, "compiler is 'piecewize'; did you mean 'piecewise'"),
        ({"compiler": "inductor"}, "compiler is 'inductor'; known: eager, npugraph, piecewise"),
        ({"compiler": 3}, "compiler is 3; known"),
        (
            {"cudagraph_mode": "FULL_DECODE_ONLY", "prefill_capture_sizes": [64]},
            "is prefill_capture_sizes () here, but prefill_capture_sizes makes it [64]",
        ),
        ({"cudagraph_mode": "FULL_DECODE"}, "did you mean 'FULL_DECODE_ONLY'"),
        ({"cudagraph_mode": 2}, "cudagraph_mode is 2; known"),
        ({"cudagraph_capture_sizes": [0]}, "capture_sizes must be whole and at least 1, found 0"),
        ({"cuda_graph_bs": 8}, "capture_sizes must be a list or tuple, found 8"),
        ({"disable_cuda_graph": "yes"}, "disable_cuda_graph must be true or false, found 'yes'"),
        ({"enable_debug_mode": 1}, "enable_debug_mode must be true or false, found 1"),
        ({"cuda_graph_sb": [1]}, "unknown key 'cuda_graph_sb'; did you mean 'cuda_graph_bs'"),
        (
            {"mode": "full", "compiler": "eager"},
            "compiler is 'eager', which is mode 'eager' here, but mode makes it 'full'",
        ),
        (
            {"cuda_graph_bs": [1], "cudagraph_capture_sizes": [2]},
            "cudagraph_capture_sizes is [2], which is capture_sizes [2] here, but cuda_graph_bs",
        ),
        (
            {"disable_cuda_graph": True, "cudagraph_mode": "FULL_DECODE_ONLY"},
            "which is mode 'full' here, but disable_cuda_graph makes it 'eager'",
        ),
    ],
)
def test_option_that_cannot_be_meant_is_an_error(theirs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CompileConfig.from_mapping(theirs)
    assert message in str(caught.value)
