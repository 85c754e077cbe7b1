"""Plans as data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
import torch

from piecewise_split import PlanError, SplitPlan, plan_split
from piecewise_split.testing import dynamo_graph

Make = Callable[[int], torch.nn.Module]


@pytest.fixture
def plan(decoder: Make) -> SplitPlan:
    module, _ = dynamo_graph(decoder(3), torch.randn(4, 8), dynamic_dim=0)
    return plan_split(module, ["ps_test::attention", "other::op"], allow_absent=True)


# fmt: off
SNAPSHOT = """\
7 pieces: 4 capturable (3 distinct), 3 splitting (3 distinct); \
split at ps_test::attention, other::op; not in the graph: other::op
piece  kind        nodes  inputs              outputs          live      cut                                                  isomorphic to
    0  capturable      7  l_x_, +2            q, out           -         graph start                                          -
    1  splitting       1  q, out              -                2, 256 B  splitting op ps_test::attention (attention)          -
    2  capturable      9  out, s77, l_x_, +2  x, q_1, out_1    1, 128 B  after splitting op ps_test::attention (attention)    -
    3  splitting       1  q_1, out_1          -                3, 384 B  splitting op ps_test::attention (attention_1)        -
    4  capturable      9  out_1, s77, x, +2   x_1, q_2, out_2  2, 256 B  after splitting op ps_test::attention (attention_1)  2
    5  splitting       1  q_2, out_2          -                3, 384 B  splitting op ps_test::attention (attention_2)        -
    6  capturable      2  out_2, s77, x_1     x_2              2, 256 B  after splitting op ps_test::attention (attention_2)  -"""  # noqa: E501
# fmt: on


def test_plan_printed_is_a_table_of_pieces(plan: SplitPlan) -> None:
    assert str(plan) == SNAPSHOT


def test_plan_json_round_trip_is_equal(plan: SplitPlan) -> None:
    text = plan.to_json()

    assert SplitPlan.from_json(text) == plan
    assert json.loads(text)["pieces"][1]["is_splitting"] is True


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pieces": [{}]}', '{"pieces": [], "more": []}'])
def test_plan_from_other_json_raises(text: str) -> None:
    with pytest.raises(PlanError, match="Reading a split plan"):
        SplitPlan.from_json(text)


def test_plan_that_0_1_0_stored_is_read(plan: SplitPlan) -> None:
    stored = json.loads(plan.to_json())
    for piece in stored["pieces"]:
        for name in ("live", "live_bytes", "source", "modules"):
            del piece[name]

    read = SplitPlan.from_json(json.dumps(stored))

    assert [piece.nodes for piece in read.pieces] == [piece.nodes for piece in plan.pieces]
    assert {piece.live_bytes for piece in read.pieces} == {None}


def test_plan_is_frozen(plan: SplitPlan) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.pieces = ()  # type: ignore[misc]
    assert hash(plan) == hash(SplitPlan.from_json(plan.to_json()))


def test_plan_made_twice_is_equal(decoder: Make) -> None:
    module, _ = dynamo_graph(decoder(2), torch.randn(4, 8))

    assert plan_split(module, ["ps_test::attention"]) == plan_split(
        module, [torch.ops.ps_test.attention]
    )


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(8, 8)
        self.mlp = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = torch.ops.ps_test.mix(self.qkv(x))
        return self.mlp(mixed).relu()  # type: ignore[no-any-return]


def test_plan_names_the_modules_that_pieces_compute() -> None:
    model = torch.nn.Sequential(_Layer(), _Layer())

    def called(x: torch.Tensor) -> torch.Tensor:
        return model(x)  # type: ignore[no-any-return]

    for traced in (model, called):
        with torch.no_grad():
            module, _ = dynamo_graph(traced, torch.randn(4, 8))

        pieces = plan_split(module, ["ps_test::mix"]).pieces

        assert [piece.modules for piece in pieces] == [
            "0.qkv",
            "0",
            "0.mlp to 1.qkv",
            "1",
            "1.mlp to 1",
        ]
        assert pieces[2].label == "piece_2 (0.mlp to 1.qkv)"


def test_plan_of_a_function_has_no_modules_and_is_called_by_its_source() -> None:
    module, _ = dynamo_graph(lambda x: torch.ops.ps_test.mix(x).sin(), torch.randn(4))

    piece = plan_split(module, ["ps_test::mix"]).pieces[1]

    assert piece.modules is None
    assert piece.label.startswith("piece_1 (tests/test_split_plan.py:")
    assert dataclasses.replace(piece, source=None).label == "piece_1"
