"""Errors of attn_update.

Each also derives from a built-in error, so you can handle them without importing this package. All
except `CaptureError`, `ProducerError` and `UpdateError` are raised before anything is launched.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class AttnUpdateError(Exception):
    """Base of all errors of this package."""


class UnknownNameError(AttnUpdateError, LookupError):
    """An operator, kind or graph key is unknown; a graph key may have been released."""


class ArgumentError(AttnUpdateError, ValueError):
    """An attention operator got an unknown argument, lacks one, or has too small a workspace."""


class RecordingError(AttnUpdateError, RuntimeError):
    """Attention was captured where it cannot be recorded, or recorded twice."""


class _LaunchError(AttnUpdateError, RuntimeError):
    def __init__(self, message: str, *, layer_name: str, operator: str) -> None:
        super().__init__(message)
        self.layer_name = layer_name
        self.operator = operator


class CaptureError(_LaunchError):
    """The operator failed while its task group was captured; the capture must be abandoned.

    Attributes:
        layer_name: The layer whose launch failed.
        operator: The operator that was launched.
    """


class PlanError(AttnUpdateError, ValueError):
    """The declared parameter groups or the expected layers do not match the records."""


class StepParameterError(AttnUpdateError, ValueError):
    """The step parameters do not match the plan: group, name, count, length, order or range."""


class DeadTensorError(AttnUpdateError, RuntimeError):
    """The memory of a tensor that a captured launch reads was freed."""


class LaneError(AttnUpdateError, RuntimeError):
    """An update lane was used incorrectly: closed, nested, or on its own stream."""


class UpdateError(_LaunchError):
    """An update failed half-way. The captured graph was released; later steps work.

    The replay of this step ran with the arguments of an earlier step for the failed layer and those
    after it, so discard its results.

    Attributes:
        layer_name: The layer whose update failed.
        operator: The operator that was launched.
    """


class ProducerError(AttnUpdateError, RuntimeError):
    """A producer failed. Nothing was replayed, and the next step of the key works.

    Attributes:
        producer: The name of the producer.
    """

    def __init__(self, message: str, *, producer: str) -> None:
        super().__init__(message)
        self.producer = producer


class NativeUnavailableError(AttnUpdateError, RuntimeError):
    """The native updater cannot be built or loaded on this machine."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a mistyped name.

    Returns:
        Text such as ``did you mean 'a' or 'b'?``, or the list of all known names.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known: {', '.join(map(repr, names)) or 'none'}"
