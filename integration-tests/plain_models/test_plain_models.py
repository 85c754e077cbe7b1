"""Decoders of transformers, in plain torch, compiled with raising in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import npu_compile
from npu_compile import CompileMode
from plain_models.launch_table import table_of
from plain_models.raised_decoder import ATTENTION, RaisedDecoder, raise_decoder
from plain_models.tiny_decoders import DECODERS, TinyDecoder

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

PAGE = Path(__file__).parents[2] / "docs" / "plain-models.md"
SHARE = (CompileMode.EAGER, CompileMode.FULL_DECODE_AND_PIECEWISE)

# What transformers and Dynamo warn of concerns nobody here.
pytestmark = pytest.mark.filterwarnings("ignore")


def check(row: RaisedDecoder) -> None:
    assert not row.differing
    assert row.error <= row.allowed_error
    assert row.raised <= 0.7 * row.launches


def test_decoder_in_plain_torch_is_raised_captured_and_replayed(device: NpuDevice) -> None:
    row = raise_decoder("qwen3", device, SHARE)

    check(row)
    assert row.graphs["full_decode_and_piecewise"] == 1 + 3


def test_explanation_says_what_is_raised_and_where_it_is_split() -> None:
    model = TinyDecoder("qwen3", torch.bfloat16).to("npu")
    inputs = {"input_ids": torch.arange(14).reshape(2, 7).to("npu")}
    config = {"mode": "piecewise", "fusions": "raise", "splitting_ops": ATTENTION}

    explanation = npu_compile.explain(model, inputs, config)

    assert explanation.report.num_captured_pieces == 3
    assert explanation.launches_before is not None
    assert explanation.launches_after is not None
    assert explanation.launches_after <= 0.7 * explanation.launches_before


def test_every_decoder_is_as_the_document_says(
    device: NpuDevice, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--every-mode"):
        pytest.skip("./nox -s integration -- integration-tests/plain_models --every-mode")
    rows = [raise_decoder(kind, device) for kind in DECODERS]

    for row in rows:
        check(row)
    if request.config.getoption("--write-launches"):
        PAGE.write_text(table_of(rows))
    assert PAGE.read_text() == table_of(rows)
