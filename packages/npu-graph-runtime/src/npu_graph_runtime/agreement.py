"""Lets ranks agree on the run mode and bucket of a step, through the caller's collective.

Ranks whose steps contain collectives (the experts of a model under data parallelism, for example)
must run the same graph at the same step, or they wait for each other forever. Each rank therefore
sends its proposal to all others, and all ranks derive the same result from the same rows.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from npu_graph_runtime.errors import RankDisagreementError, RankFailedError
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime.capture_sizes import CaptureSizes

Exchange: TypeAlias = Callable[[tuple[int, ...]], Sequence[Sequence[int]]]
"""A collective on the host: takes the integers of this rank (64 bits each) and returns those of all
ranks, in the order of the ranks. It must end with an exception where a rank does not take part."""

_MODES = tuple(RunMode)
_STRENGTH = MappingProxyType(
    {RunMode.EAGER: 0, RunMode.PIECEWISE: 1, RunMode.BREAKABLE: 1, RunMode.FULL: 2}
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AgreedStep:
    """The decision of all ranks for one step.

    Attributes:
        mode: the run mode.
        bucket: number of tokens that every rank pads its batch to, including idle ranks; ``None``
            in mode ``EAGER``, in which each rank runs its own batch.
        num_tokens: tokens of each rank before padding, by rank; 0 for an idle one.
    """

    mode: RunMode
    bucket: int | None
    num_tokens: tuple[int, ...]

    @property
    def is_idle(self) -> bool:
        """Whether no rank has anything to run."""
        return not any(self.num_tokens)


class RankAgreement:
    """Agrees with the other ranks, step by step; create one per rank.

    The result is the weakest mode that a rank with tokens proposes: ``EAGER`` before ``PIECEWISE``
    or ``BREAKABLE`` before ``FULL``. The bucket is that of the rank with the most tokens. If no
    size of the mode fits, all ranks run eagerly. An idle rank takes part with no tokens. It does
    not weaken the mode, and runs a batch of padding.

    Costs one exchange of five integers per step. Use it from one host thread.

    Args:
        sizes: the capture sizes of each captured run mode; the same on all ranks.
        exchange: the collective.
        rank: rank of this process.
    """

    def __init__(
        self, sizes: Mapping[RunMode, CaptureSizes], exchange: Exchange, *, rank: int
    ) -> None:
        self._sizes = dict(sizes)
        self._exchange = exchange
        self._rank = rank
        self._digest = _digest(self._sizes)
        self._step = 0
        self._ended = ""

    def agree(self, mode: RunMode, num_tokens: int) -> AgreedStep:
        """Return the decision for the next step. Every rank must call it, including idle ones.

        Args:
            mode: the run mode that this rank would choose by itself.
            num_tokens: tokens of this rank's batch; 0 if it is idle.

        Raises:
            RankDisagreementError: Ranks have different capture sizes, are at different steps, or
                propose modes that exclude each other. All ranks raise it.
            RankFailedError: A rank gave up, or did not take part. All other ranks raise it.
        """
        rows = self._exchanged(mode, num_tokens)
        failed = [rank for rank, row in enumerate(rows) if row[4]]
        if failed:
            raise self._end(
                RankFailedError(
                    f"agreeing on step {self._step}: {_ranks(failed)} gave up; see the error there"
                )
            )
        self._compare(rows, 0, "have other capture sizes", lambda each: f"{each:x}")
        self._compare(rows, 1, "are at other steps", str)
        proposed = {rank: _MODES[row[2]] for rank, row in enumerate(rows) if row[3]}
        tokens = tuple(row[3] for row in rows)
        self._step += 1
        weakest = min(proposed.values(), key=_STRENGTH.__getitem__, default=RunMode.EAGER)
        equal = {each for each in proposed.values() if _STRENGTH[each] == _STRENGTH[weakest]}
        if len(equal) > 1:
            said = ", ".join(f"rank {rank}: {each.value}" for rank, each in proposed.items())
            raise self._end(
                RankDisagreementError(
                    f"agreeing on step {self._step - 1}: ranks propose modes that exclude each "
                    f"other ({said}); configure all ranks alike"
                )
            )
        sizes = self._sizes.get(weakest)
        bucket = sizes.bucket_for(max(tokens)) if sizes is not None and any(tokens) else None
        return AgreedStep(
            mode=RunMode.EAGER if bucket is None else weakest, bucket=bucket, num_tokens=tokens
        )

    def give_up(self) -> None:
        """Tell the other ranks that this one cannot continue, instead of calling :meth:`agree`.

        Call it when a step has failed, before the error leaves the worker. The other ranks then
        raise `RankFailedError` rather than wait.

        Raises:
            RankFailedError: Another rank did not take part.
        """
        if not self._ended:
            self._exchanged(RunMode.EAGER, 0, gives_up=True)
            self._ended = "this rank gave up"

    def _exchanged(
        self, mode: RunMode, num_tokens: int, *, gives_up: bool = False
    ) -> list[tuple[int, ...]]:
        if self._ended:
            raise RankFailedError(
                f"agreeing on step {self._step}: the agreement ended before ({self._ended}); make "
                "a new one on all ranks"
            )
        row = (self._digest, self._step, _MODES.index(mode), num_tokens, int(gives_up))
        try:
            rows = [tuple(map(int, each)) for each in self._exchange(row)]
        except Exception as error:
            raise self._end(
                RankFailedError(
                    f"agreeing on step {self._step}: the exchange failed on rank {self._rank} "
                    f"({type(error).__name__}: {error}); a rank did not take part"
                )
            ) from error
        is_own = self._rank < len(rows) and rows[self._rank] == row
        if not is_own or any(len(each) != len(row) for each in rows):
            raise self._end(
                RankDisagreementError(
                    f"agreeing on step {self._step}: the exchange returned {rows} to rank "
                    f"{self._rank}, which gave {row}; expected the row of each rank, in the order "
                    "of the ranks"
                )
            )
        return rows

    def _compare(
        self,
        rows: Sequence[Sequence[int]],
        column: int,
        what: str,
        shown: Callable[[int], str],
    ) -> None:
        if len({row[column] for row in rows}) > 1:
            said = ", ".join(f"rank {rank}: {shown(row[column])}" for rank, row in enumerate(rows))
            raise self._end(
                RankDisagreementError(
                    f"agreeing on step {self._step}: ranks {what} ({said}); all ranks need the "
                    "same configuration and have to agree once for each step"
                )
            )

    def _end(
        self, error: RankFailedError | RankDisagreementError
    ) -> RankFailedError | RankDisagreementError:
        self._ended = str(error)
        return error


def _digest(sizes: Mapping[RunMode, CaptureSizes]) -> int:
    """Return a 60-bit hash of the sizes."""
    text = repr(sorted((mode.value, tuple(each)) for mode, each in sizes.items()))
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
