"""A call of a function that an engine marked: to run eagerly, or to have a name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class MarkedCall:
    """One call.

    Attributes:
        function: the marked function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        at_capture: called instead of it during the capture, if given.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at_capture: Callable[..., Any] | None = None

    def run(self) -> Any:
        """Call the function and return its result."""
        return self.function(*self.args, **self.kwargs)

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, as one nest of values."""
        return self.args, dict(self.kwargs)

    @property
    def name(self) -> str:
        """Its name in messages: the function's name and its string arguments.

        The same function runs in every layer, and engines pass it the layer as a string.
        """
        name = getattr(self.function, "__name__", type(self.function).__name__)
        values = (*self.args, *self.kwargs.values())
        texts = ", ".join(repr(value) for value in values if type(value) is str)
        return f"{name}({texts})" if texts else name
