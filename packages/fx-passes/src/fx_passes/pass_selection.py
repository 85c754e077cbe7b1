"""Which passes and rules run, and for which numbers of tokens; values, never registries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING

from fx_passes.errors import PipelineError

if TYPE_CHECKING:
    from fx_passes.pipeline import Pipeline


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
        exact: Whether only rules run that change no bit.
        require: Names of rules that whoever runs the pipeline asks `Report.require` for.
    """

    enabled: bool = True
    disabled: tuple[str, ...] = ()
    ranges: tuple[tuple[str, TokenRange], ...] = ()
    exact: bool = False
    require: tuple[str, ...] = ()

    @classmethod
    def read(cls, settings: object) -> PassSelection:
        """Return the switches that a configuration names.

        Args:
            settings: A mapping of the attributes: `enabled` and `exact` are bools, `disabled` and
                `require` lists of names, `ranges` maps a name to `(start, end)` in tokens, `end`
                inclusive or None.

        Raises:
            PipelineError: It is something else.
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(settings, Mapping):
            raise _wrong(f"a mapping of {', '.join(known)}", settings)
        for name in settings:
            if name not in known:
                near = get_close_matches(str(name), known) or known
                raise PipelineError(f"configuring passes: no setting {name!r}; near: {near}")
        for name in ("enabled", "exact"):
            if not isinstance(settings.get(name, True), bool):
                raise _wrong(f"{name!r} to be true or false", settings[name])
        for name in ("disabled", "require"):
            value = settings.get(name, ())
            if not isinstance(value, (list, tuple)):
                raise _wrong(f"{name!r} to be a list of names, such as [{value!r}]", value)
        ranges: Mapping[str, tuple[int, int | None]] = settings.get("ranges", {})
        return cls(
            enabled=settings.get("enabled", True),
            disabled=tuple(settings.get("disabled", ())),
            ranges=tuple(
                (name, TokenRange(start=start, end=end)) for name, (start, end) in ranges.items()
            ),
            exact=settings.get("exact", False),
            require=tuple(settings.get("require", ())),
        )

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
        # Names that do not exist are an error, whatever the sizes.
        pipeline.without(*self.disabled, *self.require, *(name for name, _ in self.ranges))
        chosen = pipeline.exact() if self.exact else pipeline
        names = chosen.names()
        return chosen.without(*(name for name in names if not self.applies_to(name, tokens)))


def _wrong(expected: str, found: object) -> PipelineError:
    return PipelineError(f"configuring passes: expected {expected}, found {found!r}")
