"""Converts a device failure into one typed error that says how to fix it."""

from __future__ import annotations

import re

from npu_graph_runtime.errors import DeviceError, UnknownDeviceError
from npu_graph_runtime.failures.error_codes import ERROR_CODES, MESSAGES, ErrorCode, unknown

# torch_npu writes "error code is 107027", CANN "runtime result = 207008", "retCode=507015" and
# "[Error]: 507015". Without such words before it a number is a size or an address.
_RUNTIME_CODE = re.compile(
    r"(?:error code(?: is)?|error_code|runtime result|ret(?:code)?|\[error\])\s*[:=]?\s*"
    r"([1-5][0-9]{5})\b",
    re.IGNORECASE,
)

# What torch_npu writes above the words of CANN, for a call of the runtime or of an operator.
_REPORT = re.compile(r"ERR\d{5} (?:PTA|OPS|HCCL) call acl api failed")
# What torch_npu says once, where the thread of its task queue ends (``NPUQueue.cpp``).
_QUEUE_ENDED = "The process exits for this inner error"
_QUEUE_REMEDY = (
    "torch_npu's task queue has ended, and torch_npu drops all later work of this process without "
    "an error: restart the process; TASK_QUEUE_ENABLE=0 launches without the queue, so that the "
    "operator that failed raises where it is called"
)
_BOILERPLATE = ("[ERROR]", "[Error]:", "Rectify the fault", "Solution:", "TraceBack")
# Reports of CANN go on for pages; what failed stands in their first lines.
_LONGEST_DETAILS = 600


def find_error_code(exception: BaseException) -> ErrorCode | None:
    """Return the device failure that an exception reports, or ``None``.

    The first runtime error code in the message counts (which torch_npu puts before CANN's own
    lines), then the known texts without a code.

    Args:
        exception: any exception; only its message is read.
    """
    message = str(exception)
    match = _RUNTIME_CODE.search(message)
    if match is not None:
        code = int(match.group(1))
        return ERROR_CODES.get(code) or unknown(code)
    for text, code in MESSAGES:
        if text in message:
            return ERROR_CODES[code]
    return None


def is_of_device(exception: BaseException) -> bool:
    """Return whether an exception reports a device failure, with or without a known code.

    Args:
        exception: any exception; only its message is read. If torch_npu's task queue stops, the
            message repeats CANN's text without a code.
    """
    return find_error_code(exception) is not None or _REPORT.search(str(exception)) is not None


def diagnose(exception: BaseException, *, doing: str, subject: str) -> DeviceError:
    """Return the typed error for a failure; raise it ``from`` the original.

    Args:
        exception: the device's exception.
        doing: the failed operation, such as ``"capturing"``.
        subject: its subject, such as ``"'decode' under key (num_tokens=8)"``.

    Returns:
        An error of the class in the table, whose ``code`` is the runtime error code. If the message
        has no known code or text, :class:`~npu_graph_runtime.errors.UnknownDeviceError` with
        ``code`` ``None``.
    """
    found = find_error_code(exception)
    said = _said(str(exception)) or type(exception).__name__
    if _QUEUE_ENDED in str(exception):
        said = f"{said}; {_QUEUE_REMEDY}"
    if found is None:
        return UnknownDeviceError(
            f"{doing} {subject}: the device reported no known error code; it said: {said}"
        )
    error = found.error(
        f"{doing} {subject}: {found.meaning} (error code {found.code}); {found.remedy}; "
        f"the device said: {said}"
    )
    error.code = found.code
    return error


def _said(message: str) -> str:
    """Return the first line of a message, and those that name an operator, a stream or a cause.

    torch_npu adds a line with the time, and one that repeats the meaning of the code.
    """
    first, *others = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    details = "; ".join(line for line in others if not line.startswith(_BOILERPLATE))
    if len(details) > _LONGEST_DETAILS:
        details = f"{details[:_LONGEST_DETAILS]}..."
    return f"{first}; {details}" if details else first
