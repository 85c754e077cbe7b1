"""Flash attention v3: what a captured launch could not update is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from attn_update import ArgumentError
from attn_update.kinds import FlashAttention
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_layout": "BNSD"}, "expected input_layout 'TND', found 'BNSD'"),
        ({"actual_seq_qlen": None}, "'actual_seq_qlen' is missing"),
        ({"actual_seq_kvlen": None}, "'actual_seq_kvlen' is missing"),
        ({"keep_prob": 0.9}, r"expected keep_prob 1\.0, found 0\.9"),
        ({"actual_seq_lengths": [1]}, "did you mean"),
    ],
)
def test_launch_that_could_not_be_updated_is_refused(
    npu_device: NpuDevice, change: dict[str, Any], reason: str
) -> None:
    case = find_case("flash v3")
    model = CaseModel(device=npu_device, case=case, kinds=all_kinds(), num_layers=1)
    given = model.arguments(2, 0, model.captured_step(2))
    kind = FlashAttention()
    kind.check_arguments(given)
    with pytest.raises(ArgumentError, match=reason):
        kind.check_arguments({**given, **change})


def test_block_table_that_the_operator_lacks_cannot_be_rebound() -> None:
    with pytest.raises(ArgumentError, match="it has no block table"):
        FlashAttention(rebind_block_table=True)
