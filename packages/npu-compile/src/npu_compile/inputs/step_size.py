"""The size of a step in tokens and sequences."""

from __future__ import annotations

from typing import NamedTuple

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError


class StepSize(NamedTuple):
    """Size of one step. If each sequence has one token, both numbers are equal.

    Attributes:
        tokens: rows of inputs with one row per token.
        sequences: rows of inputs with one row per sequence.
    """

    tokens: int
    sequences: int


def require_step_size(doing: str, size: object) -> None:
    """Check that an argument is a size of non-negative integers.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(size, StepSize) or not all(is_whole(each, least=0) for each in size):
        raise ConfigError(
            f"{doing}: the size is {size!r}, expected StepSize(tokens=..., sequences=...) of whole "
            "numbers; where each sequence brings one token both are the same"
        )
