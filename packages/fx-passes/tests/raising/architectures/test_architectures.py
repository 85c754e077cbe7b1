"""Decoder architectures of transformers: raised by kind, with the values of eager."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fx_passes.raising import SITE_KINDS
from raising.architectures.architecture_row import ArchitectureRow, raise_architecture
from raising.architectures.architecture_table import table_of
from raising.architectures.tiny_models import decoder_kinds

# One for each spelling that no other test has as a whole model.
SHARE = ("glm", "gpt_oss", "llama4_text")
LEAST = {"norm": 0.95, "rope": 0.95, "activation": 0.98, "attention": 0.9}


def repository() -> Path:
    return Path(__file__).parents[5]


# What transformers and Dynamo warn of concerns nobody here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", SHARE)
def test_architecture_is_raised_with_the_values_of_eager(kind: str) -> None:
    row = raise_architecture(kind)

    assert not row.skipped
    assert not row.crashed
    assert row.values in {"bfloat16", "float32"}
    assert row.raised == row.found, row.left


def test_every_architecture_is_as_the_document_says(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--every-architecture"):
        pytest.skip("./nox -s architectures runs all")
    kept = repository() / "build" / "architectures.jsonl"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("")
    rows: list[ArchitectureRow] = []
    for kind in decoder_kinds():
        row = raise_architecture(kind)
        rows.append(row)
        with kept.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(row)) + "\n")

    document, text = repository() / "docs" / "architectures.md", table_of(rows)
    if request.config.getoption("--write"):
        document.write_text(text)
    assert document.read_text() == text
    assert not [row.kind for row in rows if row.crashed or row.values == "wrong"]
    for kind in SITE_KINDS:
        found = sum(row.found.get(kind, 0) for row in rows)
        assert sum(row.raised.get(kind, 0) for row in rows) >= LEAST[kind] * found
