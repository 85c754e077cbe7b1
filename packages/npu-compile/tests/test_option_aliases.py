"""Options of other engines, under their own names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npu_compile import CompileConfig, ConfigError
from npu_compile.configuration.option_aliases import OPTION_ALIASES

README = Path(__file__).parents[1] / "README.md"
SPLIT = {"splitting_ops": ["my::attention"]}

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
    ({"cudagraph_mode": "FULL_DECODE_ONLY"}, {"mode": "full"}),
    ({"cudagraph_mode": "full_decode_only"}, {"mode": "full"}),
    (
        {"cudagraph_mode": "FULL_AND_PIECEWISE", **SPLIT},
        {"mode": "full_decode_and_piecewise", **SPLIT},
    ),
    (
        {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [2, 1]},
        {"mode": "full", "capture_sizes": [1, 2], "prefill_capture_sizes": [1, 2]},
    ),
    ({"cuda_graph_bs": [1, 8]}, {"capture_sizes": [1, 8]}),
    ({"piecewise_cuda_graph_tokens": [64]}, {"prefill_capture_sizes": [64]}),
    ({"disable_cuda_graph": True, "cuda_graph_bs": [1]}, {"mode": "eager", "capture_sizes": [1]}),
    ({"disable_cuda_graph": False, "mode": "full"}, {"mode": "full"}),
    # Said twice, and the same.
    ({"mode": "full", "compiler": "npugraph"}, {"mode": "full"}),
    ({"capture_sizes": (1, 2), "cuda_graph_bs": [1, 2]}, {"capture_sizes": [1, 2]}),
]


@pytest.mark.parametrize(("theirs", "ours"), SAME, ids=json.dumps)
def test_option_of_another_engine_is_ours(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert CompileConfig.from_mapping(theirs) == CompileConfig.from_mapping(ours)
    assert CompileConfig.from_json(json.dumps(theirs)) == CompileConfig.from_mapping(ours)


def test_every_option_is_tried_and_stands_in_the_table_of_the_readme() -> None:
    assert OPTION_ALIASES.keys() <= {name for theirs, _ in SAME for name in theirs}
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    for name in OPTION_ALIASES:
        assert any(row.startswith(f"| `{name}`") for row in rows), name


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"compiler": "piecewize"}, "compiler is 'piecewize'; did you mean 'piecewise'"),
        ({"compiler": "inductor"}, "compiler is 'inductor'; known: eager, npugraph, piecewise"),
        ({"compiler": 3}, "compiler is 3; known"),
        ({"cudagraph_mode": "FULL"}, "use 'FULL_DECODE_ONLY' or 'FULL_AND_PIECEWISE'"),
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
