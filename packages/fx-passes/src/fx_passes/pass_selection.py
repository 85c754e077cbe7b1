"""Which passes and rules run, and for which numbers of tokens; values, never registries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_passes.errors import PipelineError

if TYPE_CHECKING:
    from fx_passes.pipeline import Pipeline

__all__ = ["PassSelection", "TokenRange"]


@dataclass(frozen=True, kw_only=True)
class TokenRange:
    """A range of sizes that one compiled graph serves.

    Attributes:
        start: The smallest size, in tokens.
        end: The largest one, inclusive; None for no end.
    """

    start: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.end is not None and self.end < self.start):
            raise PipelineError(
                f"making a range of tokens: expected 0 <= start <= end, found {self.start} to "
                f"{self.end}"
            )

    def covers(self, other: TokenRange) -> bool:
        """Return whether every size of another range is in this one."""
        if other.start < self.start:
            return False
        return self.end is None or (other.end is not None and other.end <= self.end)


@dataclass(frozen=True, kw_only=True)
class PassSelection:
    """Switches of passes and rules.

    Attributes:
        enabled: The one switch above all others: False runs nothing.
        disabled: Names of passes and rules that never run.
        ranges: For names of passes and rules the range outside of which they do not run. A graph
            compiled for sizes that are partly outside, or not known, does without.
    """

    enabled: bool = True
    disabled: tuple[str, ...] = ()
    ranges: tuple[tuple[str, TokenRange], ...] = ()

    def applies_to(self, name: str, tokens: TokenRange | None) -> bool:
        """Return whether a pass or rule runs.

        Args:
            name: Its name.
            tokens: What the graph is compiled for; None if that is not known.
        """
        if not self.enabled or name in self.disabled:
            return False
        wanted = [each for known, each in self.ranges if known == name]
        return all(tokens is not None and each.covers(tokens) for each in wanted)

    def select(self, pipeline: Pipeline, tokens: TokenRange | None = None) -> Pipeline:
        """Return the part of a pipeline that runs.

        Raises:
            PipelineError: A name is not in the pipeline.
        """
        names = pipeline.names()
        # Names that do not exist are an error, whatever the sizes.
        pipeline.without(*self.disabled, *(name for name, _ in self.ranges))
        return pipeline.without(*(name for name in names if not self.applies_to(name, tokens)))
