"""`npu-compile explain --transformers FOLDER`: a model by its configuration, without weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from npu_compile_command import run_command
from plain_models.tiny_decoders import TinyDecoder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text"])
def test_folder_is_explained_with_raising(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TinyDecoder(kind, torch.bfloat16).model.config.save_pretrained(tmp_path)

    assert run_command(["explain", "--transformers", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "raised: 2 of 2 places of attention" in text
    assert "model.layers.0: " in text
    assert run_command(["explain", "--transformers", str(tmp_path), "--fusions", "none"]) == 0
    assert "nothing is fused" in capsys.readouterr().out
    assert run_command(["explain", "--transformers", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["launches"]["after"] <= 0.7 * told["launches"]["before"]


def test_folder_of_another_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no_such_model"}')

    assert run_command(["explain", "--transformers", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "transformers makes no decoder of it" in error
    assert len(error.splitlines()) == 1
