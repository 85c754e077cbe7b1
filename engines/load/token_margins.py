"""Margins between the tokens in which two engines first differ, by the logits of one engine.

After the first differing token two sequences are different texts, so only this token is
informative. If the two tokens were nearly equally likely, rounding decided; otherwise there is an
error.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 8


class TokenMargins:
    """Stores the largest logits after each token that a model runner samples.

    Args:
        runner: The engine's model runner.

    Attributes:
        tops: For each token of each sequence: the likeliest tokens, their logits, and the standard
            deviation of all logits there.
    """

    def __init__(self, runner: Any) -> None:
        self.tops: dict[int, list[tuple[list[int], list[float], float]]] = defaultdict(list)
        sample = runner._sample

        def seen(logits: Any, *args: Any) -> Any:
            given = logits.float().cpu()
            values, ids = given.topk(KEPT)
            for row, request in enumerate(runner.input_batch.req_ids):
                # The engine's name of a request begins with its number.
                top = (ids[row].tolist(), values[row].tolist(), given[row].std().item())
                self.tops[int(request.partition("-")[0])].append(top)
            return sample(logits, *args)

        runner._sample = seen

    def read(self) -> list[list[tuple[list[int], list[float], float]]]:
        """Return the kept logits in the order of the sequences."""
        return [self.tops[number] for number in sorted(self.tops)]


def first_differences(
    tokens: Sequence[Sequence[int]], others: Sequence[Sequence[int]], tops: Any
) -> list[float]:
    """Return, for each sequence that differs, by how much the other token's logit is lower.

    Args:
        tokens: What the other engine gave.
        others: What the engine gave whose logits were kept.
        tops: Its logits.

    Returns:
        Standard deviations of the logits at the first token that differs; for a token that is not
        among those kept, the distance of the last of them.
    """
    margins = []
    for own, theirs, top in zip(tokens, others, tops, strict=True):
        for place, (a, b) in enumerate(zip(own, theirs, strict=True)):
            if a != b:
                ids, values, deviation = top[place]
                below = values[ids.index(a)] if a in ids else values[-1]
                margins.append((values[ids.index(b)] - below) / deviation)
                break
    return margins
