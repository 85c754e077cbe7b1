"""The conformance table, by theme."""

from __future__ import annotations

from operators.cases import (
    activation,
    arithmetic,
    foreach,
    gradient,
    image,
    indexing,
    loss,
    matrix,
    normalization,
    reduction,
    transformer,
)

CASES = (
    *arithmetic.CASES,
    *activation.CASES,
    *gradient.CASES,
    *loss.CASES,
    *matrix.CASES,
    *reduction.CASES,
    *indexing.CASES,
    *normalization.CASES,
    *image.CASES,
    *foreach.CASES,
    *transformer.CASES,
)

__all__ = ["CASES"]
