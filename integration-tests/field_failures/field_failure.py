"""One reported failure: how it is reproduced, and what its diagnosis must name."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from npu_graph_runtime import NpuDevice

Failing: TypeAlias = "Callable[[], object]"
"""Lets the failure happen and returns the diagnosis: an error, or a first difference."""

_Error = TypeVar("_Error", bound=BaseException)


@dataclass(frozen=True, kw_only=True)
class FieldFailure:
    """A failure reported from the field.

    Attributes:
        name: name of the case.
        reported: addresses of threads that report it, or a failure of its kind.
        names: what the diagnosis must name: layer, operator, stream, rank, as far as they apply.
        arrange: sets up everything until the moment of the failure, and repairs the device later.
    """

    name: str
    reported: tuple[str, ...]
    names: tuple[str, ...]
    arrange: Callable[[NpuDevice], AbstractContextManager[Failing]]


def field_failure(
    *reported: str, names: tuple[str, ...]
) -> Callable[[Callable[[NpuDevice], Iterator[Failing]]], FieldFailure]:
    """Return a decorator that makes a failure of a generator: it arranges, yields, and cleans.

    Args:
        reported: threads, such as ``vllm-ascend#6002``.
        names: as for `FieldFailure`.
    """

    def decorate(arrange: Callable[[NpuDevice], Iterator[Failing]]) -> FieldFailure:
        return FieldFailure(
            name=arrange.__name__,
            reported=tuple(_address(each) for each in reported),
            names=names,
            arrange=contextmanager(arrange),
        )

    return decorate


def told(kind: type[_Error], call: Callable[[], object]) -> _Error:
    """Return the error that a call raises."""
    with pytest.raises(kind) as raised:
        call()
    return raised.value


def _address(thread: str) -> str:
    repository, _, number = thread.partition("#")
    owner = "sgl-project" if repository == "sglang" else "vllm-project"
    # Pull requests are found below issues too.
    return f"https://github.com/{owner}/{repository}/issues/{number}"
