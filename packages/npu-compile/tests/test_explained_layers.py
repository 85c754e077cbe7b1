"""Layers of an explanation: equal ones folded, with launches, bytes and names of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import npu_compile
from npu_compile.command_line.figures.fusion_figure import draw_fusions
from npu_compile_command import run_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NUM_LAYERS = 36


class Layer(nn.Module):
    def __init__(self, *, width: int = 8, is_last: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)
        self.is_last = is_last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.tanh(self.project(x)) * 1.0
        return torch.relu(out) if self.is_last else out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [Layer(is_last=index == NUM_LAYERS - 1) for index in range(NUM_LAYERS)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.sin(x)


def explained() -> npu_compile.Explanation:
    return npu_compile.explain(Model(), {"x": torch.ones(4, 8)})


def test_equal_layers_are_one_group_with_launches_and_bytes() -> None:
    first, last, outside = explained().layers

    assert (first.first, first.last, first.count) == ("layers.0", "layers.34", 35)
    assert (last.first, last.count) == ("layers.35", 1)
    assert (len(first.before), len(first.after)) == (3, 2)
    assert (len(last.before), len(last.after)) == (4, 3)
    assert [each.name for each in outside.after] == ["aten::sin"]
    # The weight, and for each of two operators what it reads and writes.
    assert first.to_mapping()["bytes"]["after"] == 8 * 8 * 4 + 4 * (4 * 8 * 4)
    assert [each.module for each in first.after] == ["layers.0.project", "layers.0"]


def test_text_page_picture_and_data_fold_them(tmp_path: Path) -> None:
    explanation = explained()

    assert "layers.0 to layers.34 (x 35): 2 launches, before fusion 3; 768 B" in str(explanation)
    assert "<td>layers.0 to layers.34 (x 35)<td>3<td>2" in explanation.html()
    assert [each["count"] for each in explanation.to_mapping()["layers"]] == [35, 1, 1]
    draw_fusions(explanation, tmp_path / "layers.svg")
    picture = (tmp_path / "layers.svg").read_text()
    assert picture.count("aten::tanh") == 4  # text and its comment, of two groups
    assert "x 35" in picture


def test_bytes_of_dynamic_sizes_are_not_numbers() -> None:
    explanation = npu_compile.explain(
        Model(), {"x": torch.ones(4, 8)}, dynamic_arg_dims={"x": (0,)}
    )

    assert explanation.layers[0].count == 35
    assert explanation.layers[0].to_mapping()["bytes"] == {"before": None, "after": None}
    assert "bytes depend on dynamic sizes" in str(explanation)


def test_command_takes_one_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["explain"]) == 1
    assert "found neither" in capsys.readouterr().err
    assert run_command(["explain", "a:b", "--transformers", str(tmp_path)]) == 1
    assert "found both" in capsys.readouterr().err
    assert run_command(["explain", "--transformers", str(tmp_path)]) == 1
    assert "expected a folder with a config.json" in capsys.readouterr().err
