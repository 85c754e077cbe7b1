"""The key of the engine's configuration, and the versions of the engine."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from vllm_npu_graph import Options
from vllm_npu_graph.options import TRIED as PAIRS
from vllm_npu_graph.options import EngineVersionError, OptionsError, release_folder

TRIED = {"vllm": "0.23.0+empty", "vllm-ascend": "0.23.0"}
NEWER = {"vllm": "0.30.0+empty", "vllm-ascend": "0.30.0rc2"}


@pytest.mark.parametrize("config", [None, {}, {"npu_graph": False}, {"npu_graph": None}])
def test_without_the_key_the_engine_is_unchanged(config: dict[str, Any] | None) -> None:
    assert Options.read(config) is None


def test_the_key_is_true_or_a_mapping() -> None:
    assert Options.read({"npu_graph": True, "other": 1}) == Options()
    assert Options.read({"npu_graph": {"updater": "kernels"}}) == Options(updater="kernels")


@pytest.mark.parametrize("value", [1, "auto", {"updaters": "auto"}, ["updater"]])
def test_another_value_is_refused_with_the_known_options(value: object) -> None:
    with pytest.raises(
        OptionsError, match="any_version, attention, fusions, graphs, native_folder, plan, updater"
    ):
        Options.read({"npu_graph": value})


def test_each_part_is_switched_by_itself() -> None:
    only = Options.read({"npu_graph": {"graphs": True, "attention": False}})
    assert only == Options(graphs=True, attention=False)
    assert Options() == Options(graphs=False, attention=True, fusions=None)


def test_the_folder_of_the_native_updater_is_a_path() -> None:
    assert Options.read({"npu_graph": {"native_folder": "/x"}}) == Options(native_folder="/x")
    with pytest.raises(OptionsError, match="'native_folder' of 'npu_graph': expected the path"):
        Options.read({"npu_graph": {"native_folder": 1}})


@pytest.mark.parametrize("name", ["attention", "graphs", "plan", "any_version"])
def test_a_switch_is_true_or_false(name: str) -> None:
    with pytest.raises(OptionsError, match=f"'{name}' of 'npu_graph': expected true or false"):
        Options.read({"npu_graph": {name: "no"}})


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, {}), (False, None), ({}, {}), ({"exact": True}, {"exact": True})],
)
def test_fusions_are_requested(value: object, expected: dict[str, object] | None) -> None:
    options = Options.read({"npu_graph": {"fusions": value}})

    assert options == Options(fusions=expected)
    assert Options.read({"npu_graph": True}) == Options(fusions=None)


@pytest.mark.parametrize("value", ["fuse_swiglu", 3, ["fuse_swiglu"]])
def test_other_values_of_fusions_are_refused(value: object) -> None:
    with pytest.raises(OptionsError, match="fusions"):
        Options.read({"npu_graph": {"fusions": value}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", Options()),
        ("false", None),
        ("null", None),
        ('{"updater": "kernels"}', Options(updater="kernels")),
    ],
)
def test_a_variable_has_the_value_where_the_engine_refuses_the_key(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: Options | None
) -> None:
    monkeypatch.setenv("VLLM_NPU_GRAPH", text)
    assert Options.read({"other": 1}) == expected
    assert Options.read(None) == expected
    assert Options.read({"npu_graph": False}) is None


def test_a_variable_that_is_not_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_NPU_GRAPH", "yes")
    with pytest.raises(OptionsError, match="variable VLLM_NPU_GRAPH: expected JSON"):
        Options.read(None)


def find(versions: dict[str, str]) -> Any:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    return version


@pytest.mark.parametrize("versions", [TRIED, NEWER])
def test_engines_that_were_tried_are_taken(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    monkeypatch.setattr("vllm_npu_graph.options.version", find(versions))
    Options().check_engine()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({**TRIED, "vllm": "0.24.0"}, "found vllm-ascend 0.23.0 and vllm 0.24.0"),
        (
            {**TRIED, "vllm-ascend": "0.23.0rc1"},
            "tried with vllm-ascend 0.23.0 and vllm 0.23.0, or",
        ),
        ({}, "found vllm-ascend none and vllm none; install one pair, as with `pip install vllm-"),
        # Each was tried with the other of its own time.
        ({**NEWER, "vllm": "0.23.0"}, "or with vllm-ascend 0.30.0rc2 and vllm 0.30.0, found"),
        ({"vllm": "0.23.0"}, "found vllm-ascend none"),
    ],
)
def test_another_engine_is_refused_in_a_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str
) -> None:
    monkeypatch.setattr("vllm_npu_graph.options.version", find(versions))
    with pytest.raises(EngineVersionError, match=message) as caught:
        Options().check_engine()
    assert "any_version" in str(caught.value)
    assert "\n" not in str(caught.value)
    Options(any_version=True).check_engine()


@pytest.mark.parametrize(
    ("ascend", "folder"),
    [
        ("0.23.0", "v0_23"),
        ("0.26.0rc1", "v0_23"),
        ("0.30.0rc2", "v0_30"),
        ("0.30.1.post1+npu", "v0_30"),
        ("1.0.0", "v0_30"),
        ("0.18.0", "v0_23"),
    ],
)
def test_an_engine_has_the_newest_folder_that_is_not_newer_than_itself(
    monkeypatch: pytest.MonkeyPatch, ascend: str, folder: str
) -> None:
    monkeypatch.setattr("vllm_npu_graph.options.version", find({"vllm-ascend": ascend}))
    assert release_folder() == folder


def test_the_readme_installs_what_was_tried() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    pair = (re.search(rf"\b{name}==([\w.]+)", text) for name in ("vllm-ascend", "vllm"))
    ascend, vllm = (found[1] for found in pair if found)
    assert PAIRS[ascend] == vllm
    for each in PAIRS:
        assert f"vllm-ascend {each}" in text or f"or {each} is installed" in text
