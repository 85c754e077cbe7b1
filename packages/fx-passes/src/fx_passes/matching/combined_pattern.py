"""Patterns put together from links, in place of a function for each combination."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from fx_passes.torch_internals import OpOverload


Linked = tuple[object, "dict[str, Tensor]"]
"""What a part of a pattern hands to the next part, and outputs of the pattern by name."""

Link = Callable[..., Linked]
"""A part of a pattern."""


def given(x: Tensor) -> Linked:
    """Hand on a value as it is; a link where others call an operator."""
    return x, {}


def result(value: Tensor) -> Linked:
    """Make a value the output `y` of a pattern; a last link."""
    return None, {"y": value}


def calling(operator: OpOverload, **inputs: str) -> Link:
    """Return the link that calls an operator on a value and on inputs of the pattern.

    Args:
        operator: The operator.
        inputs: How the inputs behind the value `x` are annotated, by name, such as `Tensor`, `int`.
    """

    def link(x: Tensor, *given: object) -> Linked:
        return operator(x, *given), {}

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
        for name, annotation in {"x": "Tensor", **inputs}.items()
    ]
    link.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    link.__name__ = link.__qualname__ = f"{operator}({', '.join(inputs)})"
    return link


def combine(first: Link, *others: Link) -> Callable[..., dict[str, Tensor]]:
    """Return the pattern of several links, one after the other.

    The parameters of the pattern are those of the links in order, without the first parameter of
    each link except the first one, which is the result of the previous link. An optional operator
    is thus a link that is present or not, instead of a second function that repeats all parameters.

    Args:
        first: Has only inputs of the pattern as parameters.
        others: The first parameter of each is a value, the others are inputs of the pattern.
    """
    parameters = list(inspect.signature(first).parameters.values())
    counts = [len(parameters)]
    for link in others:
        own = list(inspect.signature(link).parameters.values())[1:]
        parameters += own
        counts.append(len(own))

    def pattern(*inputs: Tensor) -> dict[str, Tensor]:
        left = list(inputs)
        value, outputs = first(*left[: counts[0]])
        del left[: counts[0]]
        for link, count in zip(others, counts[1:], strict=True):
            value, found = link(value, *left[:count])
            outputs = {**outputs, **found}
            del left[:count]
        return outputs

    pattern.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    pattern.__qualname__ = "+".join(link.__name__ for link in (first, *others))
    return pattern
