"""Pipelines: a caller's own, those of fx-passes by name, and one that a function makes."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fx_passes
import npu_compile
from fx_passes import Pipeline, RuleError
from npu_compile import Backend, CompileConfig, ConfigError
from npu_compile.compilation.chosen_pipeline import chosen_pipeline
from npu_compile_command import run_command
from piecewise_split import SplittingOpError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime import FakeDevice

RULES = """
import torch
from torch import Tensor
import fx_passes as fp

FACTOR = {factor}


def pattern(x: Tensor, factor: float):
    return {{"y": x * torch.sigmoid(x * factor)}}


def check(match):
    found = match.bound["factor"]
    return None if found == FACTOR else fp.NoMatch(f"the factor is {{found}}, not {{FACTOR}}")


def rewrite(match, build):
    return {{"y": build.call("aten::silu", match.bound["x"])}}


def raise_silu():
    return fp.Rule(
        name="raise_silu",
        patterns=(pattern,),
        check=check,
        rewrite=rewrite,
        operators=("aten::silu",),
        numerics="rounding",
    )


def pipeline():
    rules = (raise_silu(),)
    return fp.Pipeline(passes=(fp.NormalizePass(), fp.RulePass(name="mine", rules=rules)))


def not_a_pipeline():
    return "fuse"


class Opaque:
    def __call__(self, graph_module):
        return False


def without_hash():
    mine = fp.FunctionPass(name="opaque", function=Opaque())
    return fp.Pipeline(passes=(mine,))


def model(x):
    return x * torch.sigmoid(x * 1.0)


def decode():
    return {{"model": model, "inputs": {{"x": torch.ones(4)}}}}
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a user's, with a rule, in the current folder."""
    import importlib
    import sys

    (tmp_path / "users_rules.py").write_text(RULES.format(factor=1.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("users_rules", None)
    yield importlib.import_module("users_rules")
    sys.modules.pop("users_rules", None)


def matched(report: npu_compile.CompilationReport) -> dict[str, int]:
    assert report.fusions is not None
    return report.fusions.match_counts()


def test_pipeline_of_a_caller_is_what_compile_model_runs(rules: Any, device: FakeDevice) -> None:
    x = torch.linspace(-2, 2, 8)

    compiled = npu_compile.compile_model(rules.model, device=device, pipeline=rules.pipeline())
    result = compiled(x)

    assert matched(compiled.reports[0]) == {"raise_silu": 1}
    torch.testing.assert_close(result, torch.nn.functional.silu(x), rtol=0, atol=0)


def test_pipeline_is_an_option_of_the_backend_of_torch_compile(rules: Any) -> None:
    seen: list[str] = []

    class Watcher:
        def before_pass(self, graph_module: torch.fx.GraphModule, name: str) -> None:
            del graph_module
            seen.append(name)

        def after_pass(self, graph_module: torch.fx.GraphModule, report: Any) -> None:
            del graph_module, report

    options: dict[str, Any] = {"pipeline": rules.pipeline().observed_by(Watcher())}
    compiled: Any = torch.compile(rules.model, backend="npu_compile", options=options)
    compiled(torch.ones(4))

    assert "mine" in seen
    backend = Backend(CompileConfig(), pipeline=rules.pipeline())
    torch.compile(lambda x: rules.model(x) + 1, backend=backend)(torch.ones(4))
    assert matched(backend.reports[0]) == {"raise_silu": 1}


@pytest.mark.parametrize("suffix", ["json", "toml", "text"])
def test_configuration_names_a_function_that_makes_the_pipeline(
    rules: Any, device: FakeDevice, tmp_path: Path, suffix: str
) -> None:
    text = json.dumps({"fusions": "users_rules:pipeline", "required_fusions": ["raise_silu"]})
    if suffix == "text":
        config = CompileConfig.from_json(text)
    else:
        path = tmp_path / f"config.{suffix}"
        toml = 'fusions = "users_rules:pipeline"\nrequired_fusions = ["raise_silu"]\n'
        path.write_text(toml if suffix == "toml" else text)
        config = CompileConfig.from_file(path)

    compiled = npu_compile.compile_model(rules.model, config, device=device)
    compiled(torch.ones(4))

    assert matched(compiled.reports[0]) == {"raise_silu": 1}
    assert CompileConfig.from_json(json.dumps(config.to_mapping())) == config


@pytest.mark.usefixtures("rules")
def test_command_line_names_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", '{"fusions": "users_rules:pipeline"}']

    assert run_command(["explain", "users_rules:decode", *config]) == 0
    assert "fused by raise_silu: 1" in capsys.readouterr().out
    assert run_command(["explain", "users_rules:decode", "--fusions", "users_rules:pipeline"]) == 0
    assert "fused by raise_silu: 1" in capsys.readouterr().out
    assert run_command(["explain", "users_rules:decode", "--fusions", "rase"]) == 1
    assert "did you mean 'raise'" in capsys.readouterr().err


def test_names_choose_the_pipelines_of_fx_passes(device: FakeDevice) -> None:
    names = {}
    for fusions in ("default", "raise", "none"):
        compiled = npu_compile.compile_model(
            lambda x: (x * 2).sin(), {"fusions": fusions}, device=device
        )
        compiled(torch.ones(4))
        names[fusions] = [
            each.name
            for report in compiled.reports
            if report.fusions
            for each in report.fusions.passes
        ]

    assert "npu_fusions" in names["default"]
    assert "raise" not in names["default"]
    assert {"raise", "npu_fusions"} <= {*names["raise"]}
    assert names["none"] == []


def test_soc_reaches_the_rules() -> None:
    hashes = set()
    for fusions in ("default", "raise"):
        for soc in ("", "Ascend310P3"):
            pipeline = chosen_pipeline(CompileConfig(fusions=fusions, soc=soc))
            assert pipeline is not None
            hashes.add(pipeline.hash())

    assert len(hashes) == 4


def test_exact_fusions_leaves_rounding_rules_out(rules: Any, device: FakeDevice) -> None:
    config = {"exact_fusions": True}
    pipeline = rules.pipeline()
    compiled = npu_compile.compile_model(rules.model, config, device=device, pipeline=pipeline)
    x = torch.linspace(-2, 2, 8)

    torch.testing.assert_close(compiled(x), rules.model(x), rtol=0, atol=0)
    assert matched(compiled.reports[0]) == {}


def test_required_rule_that_matches_nothing_fails_with_its_near_miss(
    rules: Any, device: FakeDevice
) -> None:
    config = {"required_fusions": ["raise_silu"]}
    compiled = npu_compile.compile_model(
        lambda x: x * torch.sigmoid(x * 1.5), config, device=device, pipeline=rules.pipeline()
    )

    with pytest.raises(RuleError, match=r"the factor is 1\.5, not 1\.0"):
        compiled(torch.ones(4))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fusions": "users_rules:not_a_pipeline"}, "returned str, expected an fx_passes.Pipeline"),
        ({"fusions": "users_rules:pipelin"}, "has no function 'pipelin'; it has .*pipeline"),
        ({"fusions": "no_such_module:make"}, "No module named 'no_such_module'"),
        ({"fusions": "users_rules:pipeline", "disabled_fusions": ["x"]}, "disabled_fusions: .*'x'"),
        (
            {"fusions": "users_rules:pipeline", "required_fusions": ["raise_sil"]},
            "required_fusions: .*raise_sil",
        ),
        (
            {"fusions": "users_rules:without_hash", "cache_folder": "cache"},
            "leave cache_folder out",
        ),
    ],
)
def test_pipeline_that_cannot_be_made_is_named(
    config: dict[str, Any], message: str, rules: Any, device: FakeDevice
) -> None:
    with pytest.raises(ConfigError, match=message):
        npu_compile.compile_model(rules.model, config, device=device)


@pytest.mark.parametrize("config", [{"fusions": "raise"}, {"fusions": "none"}, {"soc": "Ascend"}])
def test_two_pipelines_contradict(config: dict[str, Any], rules: Any, device: FakeDevice) -> None:
    with pytest.raises(ConfigError, match="do not pass `pipeline`"):
        npu_compile.compile_model(rules.model, config, device=device, pipeline=rules.pipeline())
    not_one: Any = "raise"
    with pytest.raises(
        ConfigError, match=r"`pipeline` is 'raise', expected an fx_passes\.Pipeline"
    ):
        npu_compile.compile_model(rules.model, device=device, pipeline=not_one)


def test_fuse_switches_every_pipeline_off(rules: Any, device: FakeDevice) -> None:
    for pipeline in (None, rules.pipeline()):
        compiled = npu_compile.compile_model(
            rules.model, {"fuse": False}, device=device, pipeline=pipeline
        )
        compiled(torch.ones(4))
        assert compiled.reports == ()
    assert not CompileConfig(fusions="none").fuse
    assert dataclasses.replace(CompileConfig(fuse=False), fuse=True) == CompileConfig()


def test_cache_keeps_pipelines_apart(rules: Any, device: FakeDevice, tmp_path: Path) -> None:
    def compiled_with(pipeline: Pipeline | None) -> tuple[torch.Tensor, str]:
        config = {"cache_folder": str(tmp_path / "cache")}
        compiled = npu_compile.compile_model(rules.model, config, device=device, pipeline=pipeline)
        result = compiled(torch.linspace(-2, 2, 8))
        return result, str(compiled.reports[0].cache)

    compiled_with(rules.pipeline())
    _, again = compiled_with(rules.pipeline())
    rules.FACTOR = 2.0
    plain, changed = compiled_with(rules.pipeline())
    _, default = compiled_with(None)

    assert again.startswith("from the compile cache"), again
    assert changed != again
    assert default != again
    torch.testing.assert_close(plain, rules.model(torch.linspace(-2, 2, 8)), rtol=0, atol=0)


def test_absent_splitting_op_is_accepted_where_the_error_says_so(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    inputs = {"input_ids": torch.tensor([1, 2, 3]), "table": torch.ones(3, 2)}
    config = {"mode": "piecewise", "splitting_ops": [attention.name, "engine::other_attention"]}

    with pytest.raises(SplittingOpError, match="allow_absent=True"):
        npu_compile.explain(decoder, inputs, config)
    accepted = npu_compile.explain(decoder, inputs, {**config, "allow_absent": True})

    assert accepted.report.num_captured_pieces == 3


def test_side_inputs_reach_their_pieces(decoder: Decoder, attention: AttentionOperator) -> None:
    inputs = {"input_ids": torch.tensor([1, 2, 3]), "table": torch.ones(3, 2)}
    config: dict[str, Any] = {"mode": "piecewise", "splitting_ops": [attention.name]}
    plain = npu_compile.explain(decoder, inputs, config).report.plan
    assert plain is not None
    name = plain.pieces[0].inputs[0]

    declared = {**config, "side_inputs": {attention.name: [name]}}
    plan = npu_compile.explain(decoder, inputs, declared).report.plan

    assert plan is not None
    assert [each.side_inputs for each in plan.pieces if each.is_splitting] == [(name,)] * 2
    read = CompileConfig.from_mapping(declared)
    assert CompileConfig.from_json(json.dumps(read.to_mapping())) == read
    hash(read)
    with pytest.raises(SplittingOpError, match="no such value"):
        npu_compile.explain(decoder, inputs, {**config, "side_inputs": {attention.name: ["x"]}})


def test_words_of_the_configuration_are_those_of_the_leaves() -> None:
    import inspect

    import piecewise_split

    fields = {field.name for field in dataclasses.fields(CompileConfig)}
    split = inspect.signature(piecewise_split.plan_split).parameters
    selection = {field.name for field in dataclasses.fields(fx_passes.PassSelection)}

    assert {"splitting_ops", "allow_absent", "side_inputs"} <= fields & split.keys()
    for word, key in (
        ("disabled", "disabled_fusions"),
        ("exact", "exact_fusions"),
        ("require", "required_fusions"),
    ):
        assert word in selection
        assert key in fields
