"""How large a step is: its tokens and its sequences."""

from __future__ import annotations

from typing import NamedTuple

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError, InputError


class StepSize(NamedTuple):
    """Sizes of one step; where each sequence brings one token both are the same.

    Attributes:
        tokens: rows of inputs that have one row a token.
        sequences: rows of inputs that have one row a sequence.
    """

    tokens: int
    sequences: int


def require_step_size(doing: str, size: object) -> None:
    """See that a size is one, of whole numbers that are not negative.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(size, StepSize) or not all(is_whole(each, least=0) for each in size):
        raise ConfigError(
            f"{doing}: the size is {size!r}, expected StepSize(tokens=..., sequences=...) of whole "
            "numbers; where each sequence brings one token both are the same"
        )


def require_own_within(own: StepSize, size: StepSize) -> None:
    """See that a batch is not larger than it is to be after padding.

    Raises:
        ConfigError: it is no size.
        InputError: it is larger.
    """
    require_step_size("loading the inputs of a step", own)
    if own.tokens > size.tokens or own.sequences > size.sequences:
        raise InputError(
            f"loading the inputs of a step: a batch of {own} is to be padded to {size}, expected "
            "one that is not larger"
        )
