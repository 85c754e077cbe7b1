from __future__ import annotations

import dataclasses
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


def test_config_from_file_reads_toml(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('mode = "full"\ncapture_sizes = [4, 2]\nfuse = false\n')

    expected = CompileConfig(mode=CompileMode.FULL, capture_sizes=(2, 4), fuse=False)
    assert CompileConfig.from_file(path) == expected


def test_config_round_trips_through_plain_values() -> None:
    config = CompileConfig(
        mode=CompileMode.FULL_DECODE_AND_PIECEWISE,
        splitting_ops=("a::b",),
        capture_sizes=(4, 1),
        address_check=AddressCheck.NEVER,
    )

    values = config.to_mapping()

    assert values["mode"] == "full_decode_and_piecewise"
    assert CompileConfig.from_json(json.dumps(values)) == config


def test_config_unknown_key_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'capture_size'.*'capture_sizes'"):
        CompileConfig.from_mapping({"capture_size": [1]})


def test_config_unknown_mode_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="mode is 'piecwise'; did you mean 'piecewise'"):
        CompileConfig.from_mapping({"mode": "piecwise"})


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"mode": "piecewise"}, "mode 'piecewise' needs splitting_ops"),
    ({"mode": "full_decode_and_piecewise"}, "needs splitting_ops"),
    ({"mode": "Full"}, "mode is 'Full'; did you mean 'full'"),
    ({"mode": "ful"}, "did you mean 'full'"),
    ({"mode": "breakabel"}, "did you mean 'breakable'"),
    ({"mode": "full_and_piecewise", "splitting_ops": ["a::b"]}, "full_decode_and_piecewise"),
    ({"mode": "graph"}, "known: eager, full, piecewise"),
    ({"mode": None}, "mode is None"),
    ({"mode": 1}, "mode is 1"),
    ({"mode": ["full"]}, r"mode is \['full'\]"),
    ({"address_check": "sometimes"}, "address_check is 'sometimes'"),
    ({"address_check": "alway"}, "did you mean 'always'"),
    ({"address_check": True}, "address_check is True"),
    ({"splitting_ops": "my::attention"}, "splitting_ops must be a list or tuple"),
    ({"splitting_ops": [1]}, "splitting_ops holds 1, expected a name"),
    ({"splitting_ops": [""]}, "splitting_ops holds '', expected a name"),
    ({"splitting_ops": None}, "splitting_ops must be a list or tuple, found None"),
    ({"splitting_ops": {"my::attention": 1}}, "splitting_ops must be a list or tuple"),
    ({"disabled_fusions": [""]}, "disabled_fusions holds '', expected a name"),
    ({"disabled_fusions": "fuse_swiglu"}, "disabled_fusions must be a list or tuple"),
    ({"disabled_fusions": [None]}, "disabled_fusions holds None"),
    ({"warmup_runs": 0}, "warmup_runs must be whole and at least 1, found 0"),
    ({"warmup_runs": -1}, "warmup_runs must be whole"),
    ({"warmup_runs": 1.5}, "warmup_runs must be whole"),
    ({"warmup_runs": "2"}, "warmup_runs must be whole"),
    ({"warmup_runs": True}, "found True"),
    ({"warmup_runs": None}, "warmup_runs must be whole"),
    ({"capture_guard": "on"}, "capture_guard is 'on'"),
    ({"shadow_every": 0}, "shadow_every must be whole and at least 1, found 0"),
    ({"shadow_every": True}, "shadow_every must be whole"),
    ({"fuse": "no"}, "fuse must be true or false, found 'no'"),
    ({"fuse": 0}, "fuse must be true or false, found 0"),
    ({"fuse": None}, "fuse must be true or false"),
    ({"fusions": "rase"}, "fusions is 'rase'; did you mean 'raise'"),
    ({"fusions": ":f"}, "fusions is ':f'"),
    ({"fusions": 1}, "fusions is 1; known: default, raise, none"),
    ({"fusions": None}, "fusions is None"),
    ({"exact_fusions": 1}, "exact_fusions must be true or false, found 1"),
    ({"allow_absent": "yes"}, "allow_absent must be true or false, found 'yes'"),
    ({"required_fusions": "a"}, "required_fusions must be a list or tuple"),
    ({"required_fusions": ["a"], "fuse": False}, "required_fusions names 'a'"),
    ({"soc": 910}, "soc must be the name of a device"),
    ({"soc": "Ascend910B", "fusions": "m:f"}, "soc is 'Ascend910B', but the function 'm:f'"),
    ({"side_inputs": ["a"]}, "side_inputs must map splitting ops to lists of names"),
    ({"side_inputs": {"a::b": "x"}}, "a::b must be a list or tuple"),
    ({"modes": "full"}, "unknown key 'modes'; did you mean 'mode'"),
    ({"capture_size": [1]}, "did you mean 'capture_sizes'"),
    ({"prefill_sizes": [1]}, "did you mean 'prefill_capture_sizes'"),
    ({"spliting_ops": []}, "did you mean 'splitting_ops'"),
    ({"Fuse": True}, "did you mean 'fuse'"),
    ({"xyz": 1}, "unknown key 'xyz'; known: mode"),
    ({1: 2}, "unknown key 1; known: mode"),  # type: ignore[dict-item]
    ({"cache_dir": "x"}, "unknown key 'cache_dir'; did you mean 'cache_folder'"),
    ({"cache_folder": ""}, "cache_folder must be the path of a folder, found ''"),
    ({"cache_folder": 3}, "cache_folder must be the path of a folder, found 3"),
    ({"cache_folder": True}, "cache_folder must be the path of a folder, found True"),
    ({"cache_folder": ["a"]}, "cache_folder must be the path of a folder"),
    *[
        ({key: value}, f"{key} must be {message}")
        for key in ("capture_sizes", "prefill_capture_sizes")
        for value, message in (
            ([0], "whole and at least 1, found 0"),
            ([-4], "whole and at least 1, found -4"),
            ([2, 1.0], "whole and at least 1, found 1.0"),
            (["4"], "whole and at least 1, found '4'"),
            ([True], "whole and at least 1, found True"),
            ([[1]], "whole and at least 1"),
            ([None], "whole and at least 1"),
            (4, "a list or tuple, found 4"),
            ("1,2", "a list or tuple"),
            (None, "a list or tuple"),
        )
    ],
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES)
def test_config_bad_value_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CompileConfig.from_mapping(values)


def _toml_value(value: object) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, dict):
        items = (f"{json.dumps(key)} = {_toml_value(each)}" for key, each in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value)


def _has_none(value: object) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_none, value)))


@pytest.mark.parametrize(("values", "message"), BAD_VALUES)
def test_config_bad_value_is_refused_in_every_field(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if all(isinstance(key, str) for key in values):
        with pytest.raises(ConfigError, match=message):
            CompileConfig.from_json(json.dumps(values))
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        with pytest.raises(ConfigError, match=f"{message}.*config.json"):
            CompileConfig.from_file(path)
        # TOML has no null.
        if not any(map(_has_none, values.values())):
            path = tmp_path / "config.toml"
            lines = (f"{json.dumps(key)} = {_toml_value(each)}" for key, each in values.items())
            path.write_text("\n".join(lines))
            with pytest.raises(ConfigError, match=f"{message}.*config.toml"):
                CompileConfig.from_file(path)
    fields = {field.name for field in dataclasses.fields(CompileConfig)}
    if values.keys() <= fields:
        with pytest.raises(ConfigError, match=message):
            CompileConfig(**values)


def test_fifty_bad_configurations_are_tried() -> None:
    assert len(BAD_VALUES) >= 50


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
    (tmp_path / "bad.toml").write_text("mode = ")
    with pytest.raises(ConfigError, match=r"not valid TOML.*bad\.toml"):
        CompileConfig.from_file(tmp_path / "bad.toml")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match=r"bytes\.json"):
        CompileConfig.from_file(tmp_path / "bytes.json")
