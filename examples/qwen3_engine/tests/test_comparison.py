"""Tests of qwen3_engine.demonstration.comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch

from qwen3_engine.demonstration.comparison import compare_with_reference, logit_tolerance
from qwen3_engine.errors import RequestError
from qwen3_engine.serving.sequence import FinishReason, RequestOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qwen3_engine.demonstration.comparison import Verdict
    from qwen3_engine.demonstration.reference import ReferenceModel

# The logits of a reference over a vocabulary of 3, after each token of a text.
TABLE = torch.tensor([[0.0, 9.0, 0.0], [0.0, 1.0, 1.001], [9.0, 0.0, 0.0]])


class _TableReference:
    """After a token comes its row of the table."""

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        return TABLE[list(tokens)]


def _compare(*outputs: RequestOutput) -> Verdict:
    reference = cast("ReferenceModel", _TableReference())
    return compare_with_reference(outputs, reference, dtype=torch.bfloat16, num_layers=1)


def _output(tokens: tuple[int, ...], logits: torch.Tensor | None) -> RequestOutput:
    return RequestOutput(
        request_id=4,
        prompt=(2, 0),
        tokens=tokens,
        finish_reason=FinishReason.LENGTH,
        logits=logits,
    )


def test_compare_same_logits_and_tokens_agrees() -> None:
    verdict = _compare(_output((1, 2, 0), TABLE[[0, 1, 2]]))

    assert verdict.agrees
    assert (verdict.num_tokens, verdict.num_decided, verdict.max_error) == (3, 2, 0.0)


def test_compare_other_token_within_the_margin_agrees() -> None:
    # The two best logits after token 1 differ by 0.001: rounding may choose either.
    assert _compare(_output((1, 1), TABLE[[0, 1]])).agrees


def test_compare_other_token_beyond_the_margin_is_a_mismatch() -> None:
    verdict = _compare(_output((1, 2, 1), TABLE[[0, 1, 2]]))

    assert not verdict.agrees
    (mismatch,) = verdict.mismatches
    assert (mismatch.request_id, mismatch.index, mismatch.token, mismatch.expected) == (4, 2, 1, 0)
    assert "DIFFERS" in str(verdict)


def test_compare_logit_beyond_tolerance_differs() -> None:
    logits = TABLE[[0, 1, 2]].clone()
    logits[1, 0] += 0.5

    verdict = _compare(_output((1, 2, 0), logits))

    assert not verdict.agrees
    assert verdict.max_error == 0.5
    assert verdict.mismatches == ()


def test_compare_nothing_does_not_agree() -> None:
    refused = RequestOutput(
        request_id=0,
        prompt=(),
        tokens=(),
        finish_reason=FinishReason.REFUSED,
        error=RequestError("empty"),
    )

    assert not _compare().agrees
    assert not _compare(refused).agrees


def test_compare_output_without_logits_is_an_error() -> None:
    with pytest.raises(ValueError, match="record_logits"):
        _compare(_output((1,), None))


def test_logit_tolerance_follows_the_precision_of_the_dtype() -> None:
    bfloat16, float16 = (
        logit_tolerance(dtype, num_layers=4, logits_rms=1.0)
        for dtype in (torch.bfloat16, torch.float16)
    )

    assert bfloat16 == 8 * float16
    assert bfloat16 == pytest.approx(10 * 2**-8 * (58 / 3) ** 0.5)
