from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from npu_compile import CompileConfig, CompileMode, ConfigError
from npu_graph_runtime import AddressCheck

if TYPE_CHECKING:
    from pathlib import Path


def test_config_defaults_run_eagerly_with_all_fusions() -> None:
    config = CompileConfig()

    assert config.mode is CompileMode.EAGER
    assert config.fuse
    assert config.disabled_fusions == ()
    assert config.capture_sizes == ()


def test_config_from_mapping_normalises_strings_lists_and_sizes() -> None:
    config = CompileConfig.from_mapping(
        {
            "mode": "piecewise",
            "splitting_ops": ["my::attention"],
            "capture_sizes": [8, 1, 2, 8],
            "address_check": "always",
        }
    )

    assert config.mode is CompileMode.PIECEWISE
    assert config.splitting_ops == ("my::attention",)
    assert config.capture_sizes == (1, 2, 8)
    assert config.address_check is AddressCheck.ALWAYS


def test_config_from_file_reads_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mode": "full", "capture_sizes": [4]}))

    assert CompileConfig.from_file(path) == CompileConfig(mode=CompileMode.FULL, capture_sizes=(4,))


def test_config_unknown_key_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'capture_size'.*'capture_sizes'"):
        CompileConfig.from_mapping({"capture_size": [1]})


def test_config_unknown_mode_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="mode is 'piecwise'; did you mean 'piecewise'"):
        CompileConfig.from_mapping({"mode": "piecwise"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "piecewise"}, "needs splitting_ops"),
        ({"capture_sizes": [0]}, "capture_sizes must be whole and at least 1, found 0"),
        ({"capture_sizes": [True]}, "found True"),
        ({"capture_sizes": 4}, "must be a list or tuple, found 4"),
        ({"splitting_ops": "my::attention"}, "must be a list or tuple"),
        ({"disabled_fusions": [""]}, "expected a name"),
        ({"warmup_runs": 0}, "warmup_runs must be whole and at least 1"),
    ],
)
def test_config_bad_value_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CompileConfig.from_mapping(values)


@pytest.mark.parametrize("text", ["", "[]", "{", '"full"'])
def test_config_text_that_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JSON"):
        CompileConfig.from_json(text)


def test_config_file_that_is_missing_or_bad_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json"):
        CompileConfig.from_file(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text('{"modes": 1}')
    with pytest.raises(ConfigError, match=r"'modes'.*bad\.json"):
        CompileConfig.from_file(tmp_path / "bad.json")
