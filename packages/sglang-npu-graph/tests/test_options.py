"""The environment variable, the versions of the engine, and the door without an engine."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, entry_points
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_npu_graph import Options
from sglang_npu_graph.errors import EngineVersionError, OptionsError, PluginError
from sglang_npu_graph.kernel_operators import KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable


def door() -> Callable[[], None]:
    """Return the object that the engine calls."""
    (found,) = entry_points(group="sglang.srt.plugins", name="npu_graph")
    loaded: Callable[[], None] = found.load()
    return loaded


@pytest.mark.parametrize("text", [None, "", "0", "false", "null"])
def test_without_the_variable_the_engine_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("SGLANG_NPU_GRAPH", raising=False)
    if text is not None:
        monkeypatch.setenv("SGLANG_NPU_GRAPH", text)
    door()()
    assert "sglang" not in sys.modules
    assert "sglang_npu_graph.decode_backend" not in sys.modules


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("1", Options()),
        ("true", Options()),
        ('{"updater": "kernels"}', Options(updater="kernels")),
        ('{"any_version": true}', Options(any_version=True)),
        ('{"native_folder": "/x"}', Options(native_folder="/x")),
        ('{"decode": "engine"}', Options(decode="engine")),
        ('{"prefill": "engine"}', Options(prefill="engine")),
    ],
)
def test_the_variable_is_1_or_an_object(text: str, options: Options) -> None:
    assert Options.read({"SGLANG_NPU_GRAPH": text}) == options


@pytest.mark.parametrize("text", ["2", "1.0", "auto", "{", '{"updaters": "auto"}', '["updater"]'])
def test_another_value_is_refused_with_the_known_options(text: str) -> None:
    with pytest.raises(
        OptionsError, match="any_version, decode, fusions, native_folder, prefill, updater"
    ):
        Options.read({"SGLANG_NPU_GRAPH": text})


def test_a_folder_that_is_no_path_is_refused() -> None:
    with pytest.raises(OptionsError, match="native_folder is 1, expected the path of a folder"):
        Options.read({"SGLANG_NPU_GRAPH": '{"native_folder": 1}'})


@pytest.mark.parametrize("name", ["decode", "prefill"])
@pytest.mark.parametrize("value", ["on", 1, None])
def test_an_unknown_part_is_refused_with_the_known_ones(name: str, value: object) -> None:
    with pytest.raises(
        OptionsError, match=rf"{name} is {value!r}, expected one of [\w, ]+, engine"
    ):
        Options.read({"SGLANG_NPU_GRAPH": json.dumps({name: value})})


def find(versions: dict[str, str]) -> Any:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    return version


def test_the_engine_that_was_tried_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_npu_graph.options.version", find({"sglang": "0.5.23"}))
    Options().check_engine()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"sglang": "0.5.24"}, "tried with sglang 0.5.23, found 0.5.24"),
        ({"sglang": "0.5.23rc1"}, "found 0.5.23rc1"),
        ({}, "found none"),
    ],
)
def test_another_engine_is_refused_in_a_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str
) -> None:
    monkeypatch.setattr("sglang_npu_graph.options.version", find(versions))
    monkeypatch.setenv("SGLANG_NPU_GRAPH", "1")
    with pytest.raises(EngineVersionError, match=message) as caught:
        door()()
    assert "any_version" in str(caught.value)
    assert "\n" not in str(caught.value)
    Options(any_version=True).check_engine()


def test_the_engine_cannot_log_a_refusal_and_continue() -> None:
    # SGLang's loader catches any Exception of a plugin.
    assert not issubclass(PluginError, Exception)


@pytest.mark.parametrize(
    ("text", "fusions"),
    [
        ("true", {}),
        ("false", None),
        ("null", None),
        ('{"disabled": ["noops"]}', {"disabled": ["noops"]}),
    ],
)
def test_fusions_are_requested(text: str, fusions: object) -> None:
    options = Options.read({"SGLANG_NPU_GRAPH": f'{{"fusions": {text}}}'})
    assert options == Options(fusions=fusions)  # type: ignore[arg-type]


def test_the_kernels_of_the_engine_have_schemas_that_torch_reads() -> None:
    for target, schema in KERNELS.items():
        name = target.rpartition(".")[2]
        assert torch._C.parse_schema(f"{name}{schema}").name == name
