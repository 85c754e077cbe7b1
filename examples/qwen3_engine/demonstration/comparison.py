"""Compares the logits and tokens of an engine with a float32 reference.

How far may the logits be off? Each operator rounds its result to the dtype, which adds a relative
error of at most the unit roundoff ``u`` (2^-8 for bfloat16, 2^-11 for float16); uniform over
that range, its root mean square is ``u / sqrt(3)``. A layer rounds 14 results that enter the
residual stream: two sums and two norms on it; projection, norm, three roundings of the rotary
embedding, and the output of attention; output projection; gate and up, their product (two
roundings), and the down projection. The final norm and the logits add 2. Independent errors add in
squares, so the error of a logit has about the standard deviation

    sigma = u / sqrt(3) * sqrt(14 * num_layers + 2) * rms(logits)

This assumes that every layer passes errors on unchanged. For some texts a norm or a softmax
amplifies them: over 6,000 tokens of the tiny checkpoint in bfloat16 the logits of one token had
errors of 0.9 sigma in the median and 1.8 sigma at most. The tolerance is therefore 5 standard
deviations of a token whose errors are amplified by 2: 10 sigma. The largest error of those 3
million logits was 7.1 sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qwen3_engine.demonstration.reference import ReferenceModel
    from qwen3_engine.serving.sequence import RequestOutput

_ROUNDINGS_PER_LAYER = 14
_ROUNDINGS_AT_THE_END = 2
_ENLARGEMENT = 2.0
_DEVIATIONS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenMismatch:
    """A token that the engine should have chosen differently.

    Attributes:
        request_id: the request.
        index: of the token in the output.
        token: chosen by the engine.
        expected: best token of the reference.
        margin: of the expected token above the second best, in logits.
    """

    request_id: int
    index: int
    token: int
    expected: int
    margin: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of a comparison.

    Attributes:
        num_tokens: tokens compared.
        num_decided: tokens at which the reference's margin exceeds the tolerance, where the engine
            must choose the same.
        tolerance: on each logit.
        max_error: largest difference of a logit.
        mismatches: decided tokens at which the engine chose another.
    """

    num_tokens: int
    num_decided: int
    tolerance: float
    max_error: float
    mismatches: tuple[TokenMismatch, ...]

    @property
    def agrees(self) -> bool:
        """Whether something was compared, every logit is within tolerance and no token differs."""
        return self.num_tokens > 0 and self.max_error <= self.tolerance and not self.mismatches

    def __str__(self) -> str:
        word = "agrees" if self.agrees else "DIFFERS"
        return (
            f"{word}: largest error {self.max_error:.4f} of {self.tolerance:.4f} over "
            f"{self.num_tokens} tokens, {len(self.mismatches)} wrong of {self.num_decided} decided"
        )


def logit_tolerance(dtype: torch.dtype, *, num_layers: int, logits_rms: float) -> float:
    """Return how far a logit may be off; derived in the text of this module.

    Args:
        dtype: of the model.
        num_layers: decoder layers.
        logits_rms: root mean square of the reference's logits.
    """
    unit_roundoff = torch.finfo(dtype).eps / 2
    roundings = _ROUNDINGS_PER_LAYER * num_layers + _ROUNDINGS_AT_THE_END
    sigma = unit_roundoff / math.sqrt(3) * math.sqrt(roundings) * logits_rms
    return _DEVIATIONS * _ENLARGEMENT * sigma


def compare_with_reference(
    outputs: Iterable[RequestOutput],
    reference: ReferenceModel,
    *,
    dtype: torch.dtype,
    num_layers: int,
) -> Verdict:
    """Compare greedy outputs with the reference, fed with the tokens of the outputs.

    Args:
        outputs: of greedy requests, with recorded logits; rejected ones are left out.
        reference: the same checkpoint.
        dtype: of the model that made the outputs.
        num_layers: decoder layers of it.

    Raises:
        ValueError: an output has no logits.
    """
    compared = [output for output in outputs if output.error is None]
    expected = [_reference_logits(output, reference) for output in compared]
    num_values = sum(logits.numel() for logits in expected)
    squares = sum(float(logits.square().sum()) for logits in expected)
    rms = math.sqrt(squares / num_values) if num_values else 0.0
    tolerance = logit_tolerance(dtype, num_layers=num_layers, logits_rms=rms)
    errors = [
        float((_recorded(output) - logits).abs().max())
        for output, logits in zip(compared, expected, strict=True)
    ]
    mismatches: list[TokenMismatch] = []
    num_decided = 0
    for output, logits in zip(compared, expected, strict=True):
        best, tokens = torch.topk(logits, 2, dim=-1)
        margins = best[:, 0] - best[:, 1]
        num_decided += int((margins > tolerance).sum())
        mismatches += [
            TokenMismatch(
                request_id=output.request_id,
                index=index,
                token=token,
                expected=int(tokens[index, 0]),
                margin=float(margins[index]),
            )
            for index, token in enumerate(output.tokens)
            if token != int(tokens[index, 0]) and float(margins[index]) > tolerance
        ]
    return Verdict(
        num_tokens=sum(len(output.tokens) for output in compared),
        num_decided=num_decided,
        tolerance=tolerance,
        max_error=max(errors, default=0.0),
        mismatches=tuple(mismatches),
    )


def _recorded(output: RequestOutput) -> torch.Tensor:
    if output.logits is None:
        raise ValueError(
            f"comparing request {output.request_id}: it has no logits; set record_logits in the "
            "EngineConfig"
        )
    return output.logits


def _reference_logits(output: RequestOutput, reference: ReferenceModel) -> torch.Tensor:
    """Return the reference's logits for each generated token: ``[num_tokens, vocab_size]``."""
    first = len(output.prompt) - 1
    text = [*output.prompt, *output.tokens[:-1]]
    return reference.logits(text)[first:]
