"""The host lengths of the step that is running."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class StepState:
    """The lengths of a step that attention needs in addition to tensors, as host integers.

    One object belongs to one model. Set the lengths before each forward
    pass; the attention of all layers reads them.

    Attributes:
        cumulative_query_lengths: running sums of the tokens of each sequence in this step.
        kv_lengths: tokens of each sequence in the cache, including those of this step; 0 for a row
            of padding.
        is_padded: whether tensors may have more tokens and sequences than the lengths describe; the
            rest is padding, which attention leaves alone.
    """

    def __init__(self) -> None:
        self.cumulative_query_lengths: list[int] = []
        self.kv_lengths: list[int] = []
        self.is_padded = False

    def load(self, query_lengths: Sequence[int], kv_lengths: Sequence[int]) -> None:
        """Set the lengths of the next forward pass; one entry for each sequence."""
        self.load_sums(list(accumulate(query_lengths)), kv_lengths)

    def load_sums(
        self,
        cumulative_query_lengths: Sequence[int],
        kv_lengths: Sequence[int],
        *,
        is_padded: bool = False,
    ) -> None:
        """Set the lengths of the next forward pass, those of the queries as running sums."""
        self.is_padded = is_padded
        self.cumulative_query_lengths = list(cumulative_query_lengths)
        self.kv_lengths = list(kv_lengths)
