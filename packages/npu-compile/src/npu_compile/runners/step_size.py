"""How large a step is: its tokens and its sequences."""

from __future__ import annotations

from typing import NamedTuple


class StepSize(NamedTuple):
    """Sizes of one step; where each sequence brings one token both are the same.

    Attributes:
        tokens: rows of inputs that have one row a token.
        sequences: rows of inputs that have one row a sequence; 0 where nothing counts them.
    """

    tokens: int
    sequences: int
