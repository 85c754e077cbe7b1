"""The explanation of a compilation, without running the model."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from npu_compile import ConfigError
from npu_compile_command import run_command
from piecewise_split import SplittingOpError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from conftest import AttentionOperator, Decoder

INPUTS = {"input_ids": torch.tensor([1, 2, 3]), "table": torch.ones(3, 2)}
ROWS = {"input_ids": (0,), "table": (0,)}


def explained(
    decoder: Decoder, attention: AttentionOperator, **config: object
) -> npu_compile.Explanation:
    options = {"splitting_ops": [attention.name], **config}
    return npu_compile.explain(decoder, INPUTS, options, dynamic_arg_dims=ROWS)


def test_a_split_model_is_explained_piece_by_piece_and_does_not_run(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    explanation = explained(
        decoder, attention, mode="piecewise", capture_sizes=[2, 4], prefill_capture_sizes=[8]
    )

    assert attention.num_calls == 0
    assert explanation.num_device_graphs() == {"decode": 2 * 3, "prefill": 3}
    text = str(explanation)
    assert "Decoder, mode piecewise" in text
    assert f"splitting op {attention.name}" in text
    assert "device graphs for decode: 6" in text


@pytest.mark.parametrize(
    ("mode", "decode", "prefill"),
    [
        ("eager", 0, 0),
        ("full", 2, 1),
        ("full_decode_and_piecewise", 2, 3),
        ("breakable", None, None),
        ("torchair", 2, 1),
        ("measured", 6, 3),
    ],
)
def test_device_graphs_are_counted_by_mode(
    decoder: Decoder,
    attention: AttentionOperator,
    mode: str,
    decode: int | None,
    prefill: int | None,
) -> None:
    explanation = explained(
        decoder, attention, mode=mode, capture_sizes=[2, 4], prefill_capture_sizes=[8]
    )

    assert explanation.num_device_graphs() == {"decode": decode, "prefill": prefill}
    is_split = mode in {"full_decode_and_piecewise", "measured"}
    assert (explanation.report.plan is not None) == is_split
    assert ("at most 6; each size in the fastest of eager, full" in str(explanation)) == (
        mode == "measured"
    )
    assert ("compiled further by npugraph_ex" in str(explanation)) == (mode == "torchair")


def test_the_counted_graphs_are_those_that_are_captured(
    decoder: Decoder, attention: AttentionOperator, device: Any
) -> None:
    config = {"mode": "piecewise", "splitting_ops": [attention.name], "capture_sizes": [2, 4]}
    explanation = npu_compile.explain(decoder, INPUTS, config, dynamic_arg_dims=ROWS)
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=ROWS)
    specs = {
        "input_ids": npu_compile.InputSpec(dtype=torch.int64),
        "table": npu_compile.InputSpec(dtype=torch.float32, trailing_shape=(2,)),
    }
    runner = npu_compile.DecodeRunner(compiled, inputs=specs)

    def prepare(size: int) -> None:
        attention.lengths[:] = [0] * size

    runner.capture(prepare)

    assert compiled.num_captured_graphs == explanation.num_device_graphs()["decode"]


def test_fusions_and_launches_are_counted() -> None:
    def model(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.t().t() * y + z

    inputs = {name: torch.ones(4, 4) for name in "xyz"}
    explanation = npu_compile.explain(model, inputs)

    assert explanation.launches_before is not None
    assert explanation.launches_after is not None
    assert explanation.launches_after <= explanation.launches_before == 2
    assert f"launched by a step: {explanation.launches_after}, before fusion 2" in str(explanation)
    assert npu_compile.explain(model, inputs, {"fuse": False}).launches_before is None


def test_tensors_may_be_on_meta(decoder: Decoder, attention: AttentionOperator) -> None:
    inputs = {name: value.to("meta") for name, value in INPUTS.items()}
    config = {"mode": "piecewise", "splitting_ops": [attention.name]}

    explanation = npu_compile.explain(decoder.to("meta"), inputs, config)

    assert explanation.report.num_captured_pieces == 3


def test_the_page_shows_every_piece(decoder: Decoder, attention: AttentionOperator) -> None:
    page = explained(decoder, attention, mode="piecewise").html()

    assert page.count('class="piece') == 1 + 5
    assert "<h1>Decoder, mode piecewise</h1>" in page
    assert attention.name in page
    assert "<script" not in page


def test_model_that_cannot_be_explained_is_a_clear_error(decoder: Decoder) -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(ConfigError, match="explaining branching: it is not one graph for Dynamo"):
        npu_compile.explain(branching, {"x": torch.ones(2)})
    with pytest.raises(ConfigError, match="explaining branching: missing a required argument: 'x'"):
        npu_compile.explain(branching, {})
    with pytest.raises(ConfigError, match="dynamic_arg_dims names 'rows'"):
        npu_compile.explain(decoder, INPUTS, dynamic_arg_dims={"rows": (0,)})
    stance: Any = torch.compiler.set_stance
    with stance("force_eager"), warnings.catch_warnings():
        # From torch 2.12 on torch says so too.
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigError, match="handed over no graph"):
            npu_compile.explain(lambda x: x.sin(), {"x": torch.ones(2)})
    with pytest.raises(SplittingOpError):
        npu_compile.explain(decoder, INPUTS, {"mode": "piecewise", "splitting_ops": ["aten::cos"]})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that makes models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "explained_models.py").write_text(
        "import torch\n"
        "def model(x): return torch.tanh(x * 2 + 1)\n"
        "def good(): return {'model': model, 'inputs': {'x': torch.ones(2)}}\n"
        "def other(): return [model]\n"
        "def more(): return {**good(), 'mode': 'full'}\n"
        "def unfit(): return {**good(), 'inputs': {}}\n"
    )
    return "explained_models"


def test_command_prints_text_json_and_page(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["explain", f"{module}:good"]) == 0
    assert capsys.readouterr().out.startswith("model, mode eager\n")

    full = ["--config", '{"mode": "full", "capture_sizes": [4]}']
    assert run_command(["explain", f"{module}:good", *full, "--json"]) == 0
    told: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["config"]["mode"], told["device_graphs"]) == ("full", {"decode": 1, "prefill": 0})

    page = tmp_path / "page.html"
    assert run_command(["explain", f"{module}:good", "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["good"], "finding the model 'good': expected MODULE:FUNCTION"),
        (["no_such_module:good"], "No module named 'no_such_module'"),
        (["explained_models:goood"], "has no function 'goood'; it has good, model, more"),
        (["explained_models:other"], "with model, inputs and, if wished"),
        (["explained_models:more"], "found ['inputs', 'mode', 'model']"),
        (["explained_models:unfit"], "missing a required argument: 'x'"),
        (["explained_models:good", "--config", '{"mode": "ful"}'], "did you mean 'full'"),
        (["explained_models:good", "--html", "absent/page.html"], "there is no folder"),
    ],
)
@pytest.mark.usefixtures("module")
def test_command_that_cannot_says_why_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["explain", *arguments]) == 1

    error = capsys.readouterr().err
    assert error.startswith("npu-compile: ")
    assert said in error
    assert len(error.splitlines()) == 1
