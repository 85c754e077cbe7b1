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
)

__all__ = ["CASES"]
