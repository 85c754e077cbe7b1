"""Errors are built-in exceptions too."""

from __future__ import annotations

import pytest

from npu_graph_runtime import errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.DeviceUnavailableError, ImportError),
        (errors.GraphKeyError, ValueError),
        (errors.CaptureSizeError, ValueError),
        (errors.GraphNotCapturedError, LookupError),
        (errors.InputAddressError, ValueError),
        (errors.WeakOutputError, TypeError),
        (errors.OutOfDeviceMemoryError, MemoryError),
        (errors.FeatureNotSupportedError, NotImplementedError),
        (errors.DeviceTimeoutError, TimeoutError),
        (errors.DeadlockError, TimeoutError),
    ],
)
def test_error_raised_is_caught_as_builtin(
    error: type[errors.GraphRuntimeError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin, match="what happened"):
        raise error("what happened")
    assert issubclass(error, RuntimeError)
    assert error("x").code is None
