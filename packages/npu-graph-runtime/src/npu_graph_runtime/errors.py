"""Errors of the package; each is also a built-in exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_runtime.capturing.guarding.capture_finding import CaptureFinding
    from npu_graph_runtime.failures.difference import FirstDifference


class GraphRuntimeError(RuntimeError):
    """Anything this package refuses or diagnoses.

    Attributes:
        code: the runtime error code of the device, where the failure has one.
    """

    code: int | None = None


class DeviceUnavailableError(GraphRuntimeError, ImportError):
    """The device of a seam implementation cannot be used in this process."""


class GraphKeyError(GraphRuntimeError, ValueError):
    """A graph key is missing or impossible."""


class CaptureSizeError(GraphRuntimeError, ValueError):
    """Capture sizes that no bucket can be chosen from."""


class CaptureSessionError(GraphRuntimeError):
    """A capture session is opened, nested or closed where it must not be."""


class GraphNotCapturedError(GraphRuntimeError, LookupError):
    """A replay was asked for under a graph key that was never captured."""


class ReplayRefusedError(GraphRuntimeError):
    """A graph is not the one that is to be replayed now; nothing was launched."""


class InputAddressError(GraphRuntimeError, ValueError):
    """An input of a replay is not what the capture baked in: an address, a layout or a value."""


class UnsupportedInputError(GraphRuntimeError, TypeError):
    """A call that :func:`~npu_graph_runtime.graphed` cannot capture: an argument or a result."""


class ReplacedWeightError(GraphRuntimeError, ValueError):
    """A weight, or other memory that a captured graph uses, was replaced, moved or freed."""


class KeptMemoryError(GraphRuntimeError, ValueError):
    """Memory that a capture made is kept outside of it and is no output."""


class UncapturableError(GraphRuntimeError, ValueError):
    """The eager run before a capture did what a capture cannot record.

    Args:
        message: for a person.
        findings: what was found, in the order of the run.

    Attributes:
        findings: as given.
    """

    def __init__(self, message: str, findings: Sequence[CaptureFinding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class FrozenStateWarning(RuntimeWarning):
    """A captured function changed Python state, which its replays do not change."""


class EagerSegmentError(GraphRuntimeError, ValueError):
    """A function that runs eagerly between captured segments returned what they cannot read."""


class ContextThreadError(GraphRuntimeError):
    """Two host threads set the run mode of one context at the same time."""


class RankDisagreementError(GraphRuntimeError):
    """Ranks that have to run the same step are configured or called differently."""


class RankFailedError(GraphRuntimeError):
    """A rank that the step needs gave up or did not take part."""


class ShadowDifferenceError(GraphRuntimeError):
    """The graphs of a step gave something else than its eager run.

    Args:
        message: for a person.
        difference: what differs first.

    Attributes:
        difference: as given.
    """

    def __init__(self, message: str, difference: FirstDifference) -> None:
        super().__init__(message)
        self.difference = difference


class WeakOutputError(GraphRuntimeError, TypeError):
    """An output cannot be kept without keeping its memory alive."""


class DeviceError(GraphRuntimeError):
    """The device reported a failure; the base of all diagnosed errors."""


class UnknownDeviceError(DeviceError):
    """The device reported a failure whose code is not in the table."""


class InvalidArgumentError(DeviceError, ValueError):
    """The device refused an argument."""


class IllegalWhileCapturingError(DeviceError):
    """An operation that cannot be captured was issued while capturing."""


class CaptureStateError(DeviceError):
    """A capture was begun, ended or joined in a state that does not allow it."""


class TaskGroupError(DeviceError):
    """A task group or task update was begun, ended or changed illegally."""


class OutOfDeviceMemoryError(DeviceError, MemoryError):
    """The device has no memory left."""


class OutOfDeviceResourcesError(DeviceError):
    """The device has no streams, events, notifies or models left."""


class FeatureNotSupportedError(DeviceError, NotImplementedError):
    """The device or its driver does not support what was asked for."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """A task, stream or event did not finish in time."""


class KernelError(DeviceError):
    """A kernel failed on the device."""


class HardwareError(DeviceError):
    """Memory, link or firmware of the device failed."""


class DeadlockError(DeviceError, TimeoutError):
    """A stream waits for an event that nothing can signal any more."""
