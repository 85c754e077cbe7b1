"""How large a step is: its tokens and its sequences."""

from __future__ import annotations

from typing import NamedTuple


class StepSize(NamedTuple):
    """Sizes of one step; where each sequence brings one token both are the same.

    Attributes:
        tokens: rows of inputs that have one row a token.
        sequences: rows of inputs that have one row a sequence.
    """

    tokens: int
    sequences: int
