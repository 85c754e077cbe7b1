"""Errors of the package; each is also a built-in exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_runtime.capturing.guarding.capture_finding import CaptureFinding
    from npu_graph_runtime.failures.difference import FirstDifference


class GraphRuntimeError(RuntimeError):
    """Base of all errors that this package raises or diagnoses.

    Attributes:
        code: the runtime error code of the device, if the failure has one.
    """

    code: int | None = None


class DeviceUnavailableError(GraphRuntimeError, ImportError):
    """The device cannot be used in this process."""


class GraphKeyError(GraphRuntimeError, ValueError):
    """A graph key is missing or invalid."""


class CaptureSizeError(GraphRuntimeError, ValueError):
    """No bucket can be chosen from these capture sizes."""


class CaptureSessionError(GraphRuntimeError):
    """A capture session was opened, nested or closed in the wrong place."""


class GraphNotCapturedError(GraphRuntimeError, LookupError):
    """A replay was requested for a graph key that was never captured."""


class ReplayRefusedError(GraphRuntimeError):
    """The graph is not the one that is to be replayed now; nothing was launched."""


class InputAddressError(GraphRuntimeError, ValueError):
    """An input of a replay differs from that of the capture in address, layout or value."""


class UnsupportedInputError(GraphRuntimeError, TypeError):
    """:func:`~npu_graph_runtime.graphed` cannot capture a call because of an argument or result."""


class ReplacedWeightError(GraphRuntimeError, ValueError):
    """A weight, or other memory that a captured graph uses, was replaced, moved or freed."""


class KeptMemoryError(GraphRuntimeError, ValueError):
    """Memory that a capture allocated is kept outside it and is not an output."""


class UncapturableError(GraphRuntimeError, ValueError):
    """The eager run before a capture did work that cannot be captured.

    Attributes:
        findings: the findings, in the order of the run.
    """

    def __init__(self, message: str, findings: Sequence[CaptureFinding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class FrozenStateWarning(RuntimeWarning):
    """A captured function changed Python state, which its replays do not change."""


class EagerSegmentError(GraphRuntimeError, ValueError):
    """A function that runs eagerly returned something that captured segments cannot read."""


class ContextThreadError(GraphRuntimeError):
    """Two host threads set the run mode of one context at the same time."""


class RankDisagreementError(GraphRuntimeError):
    """Ranks that must run the same step are configured or called differently."""


class RankFailedError(GraphRuntimeError):
    """A rank that the step needs gave up or did not take part."""


class ShadowDifferenceError(GraphRuntimeError):
    """The results of a step's graphs differ from those of its eager run.

    Attributes:
        difference: the first difference.
    """

    def __init__(self, message: str, difference: FirstDifference) -> None:
        super().__init__(message)
        self.difference = difference


class LayerEventError(GraphRuntimeError):
    """A layer event is recorded twice, unknown, or of a step that is over."""


class WeakOutputError(GraphRuntimeError, TypeError):
    """An output cannot be kept without keeping its memory alive."""


class DeviceError(GraphRuntimeError):
    """The device reported a failure; the base of all diagnosed errors."""


class UnknownDeviceError(DeviceError):
    """The device reported a failure whose code is not in the table."""


class InvalidArgumentError(DeviceError, ValueError):
    """The device rejected an argument."""


class IllegalWhileCapturingError(DeviceError):
    """An operation that cannot be captured was launched while capturing."""


class CaptureStateError(DeviceError):
    """A capture was begun, ended or joined in a state that does not allow it."""


class TaskGroupError(DeviceError):
    """A task group or task update was begun, ended or changed illegally."""


class OutOfDeviceMemoryError(DeviceError, MemoryError):
    """The device has no memory left."""


class OutOfDeviceResourcesError(DeviceError):
    """The device has no streams, events, notifies or models left."""


class FeatureNotSupportedError(DeviceError, NotImplementedError):
    """The device or its driver does not support the requested feature."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """A task, stream or event did not finish in time."""


class KernelError(DeviceError):
    """A kernel failed on the device."""


class HardwareError(DeviceError):
    """Memory, link or firmware of the device failed."""


class DeadlockError(DeviceError, TimeoutError):
    """A stream waits for an event that nothing can signal any more."""
