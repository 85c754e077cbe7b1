"""Checks a function for work that cannot be captured, without capturing it."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import re
import traceback
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_runtime.capturing.capture_session import CaptureSession
from npu_graph_runtime.capturing.guarding.capture_finding import CaptureFinding, FindingKind
from npu_graph_runtime.capturing.guarding.capture_guard import CaptureGuard, GuardedRun
from npu_graph_runtime.capturing.guarding.pretended_device import PretendedDevice
from npu_graph_runtime.capturing.tensor_leaves import named_arguments, tensor_leaves
from npu_graph_runtime.capturing.watching.capture_watch import CallableWatch, KeptMemory
from npu_graph_runtime.capturing.watching.changed_state import ChangedState
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace, is_of_torch
from npu_graph_runtime.capturing.watching.watched_weights import weights_of
from npu_graph_runtime.devices.fake import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType

    from npu_graph_runtime.graph_context import CallContext

_LAST_NAME = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])*$")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class UncapturableWork:
    """Work of a function that cannot be captured. ``str()`` returns readable text.

    Attributes:
        findings: the findings in the order of the calls.
        stopped: where and why a call ended early, so that the rest was not checked; ``None``
            if both calls returned.
    """

    findings: tuple[CaptureFinding, ...]
    stopped: str | None

    @property
    def is_none(self) -> bool:
        """Whether nothing was found, and both calls returned."""
        return not self.findings and self.stopped is None

    def to_mapping(self) -> dict[str, Any]:
        """Return the findings as plain data for JSON."""
        return {
            "findings": [
                {**dataclasses.asdict(found), "kind": found.kind.name, "remedy": found.remedy}
                for found in self.findings
            ],
            "stopped": self.stopped,
        }

    def __str__(self) -> str:
        lines = [f"{found}\n    {found.remedy}" for found in self.findings]
        if self.stopped is not None:
            lines.append(
                f"{self.stopped}\n    the call ended there, so what comes after it was not looked "
                "at; a function that needs operators or streams of a device needs inputs on that "
                "device"
            )
        number = len(self.findings)
        found = f"{number or 'no'} finding{'' if number == 1 else 's'}"
        return "\n".join([*lines, f"{found} in two calls"])


def find_uncapturable(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    context: CallContext | None = None,
) -> UncapturableWork:
    """Call a function twice without gradients, and find work that a capture could not record.

    You need no device. If all tensors are on the CPU, they are treated as device tensors: those
    that exist before the call, and all that the function creates, except those it puts on the host
    explicitly (``"cpu"``, `torch.tensor` without a device, pinned memory). If a tensor is on
    another device, that device is used. The function really runs, with all its side effects;
    compiled functions run eagerly. A finding that only the first call has is marked as such.

    It cannot find work that shows in no operator and no Python call: reads in a C++ kernel, work of
    other threads and, on the CPU, moves to ``torch.device("cpu")`` (the string ``"cpu"`` is found),
    because ``x.device`` is the same.

    Args:
        function: the function that would be captured.
        args: its positional arguments.
        kwargs: its keyword arguments.
        context: context of functions marked by :func:`~npu_graph_runtime.runs_eagerly`, which are
            then skipped, as in a breakable capture. ``None`` if the graph does not break at them.
    """
    kwargs = kwargs or {}
    calls: list[list[CaptureFinding]] = []
    stopped = None
    for _ in range(2):
        call = _LookedAtCall(function, args, kwargs, context)
        stopped = call.run()
        calls.append(call.findings)
        if stopped is not None:
            break
    if len(calls) == 1:
        return UncapturableWork(findings=tuple(calls[0]), stopped=stopped)
    again = {(found.kind, found.file, found.line): found for found in calls[1]}
    findings = []
    for found in calls[0]:
        repeated = again.pop((found.kind, found.file, found.line), None)
        if repeated is None and stopped is None:
            if found.kind is FindingKind.CHANGED_STATE:
                continue  # such as that it has been called
            findings.append(dataclasses.replace(found, is_of_first_call=True))
        else:
            findings.append(found)
    return UncapturableWork(findings=(*findings, *again.values()), stopped=stopped)


class _LookedAtCall:
    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        context: CallContext | None,
    ) -> None:
        self._call = lambda: function(*args, **kwargs)
        self._context = context
        given = [tensor for _, tensor in tensor_leaves((*args, *kwargs.values()), "")]
        weights = weights_of(function)
        devices = [tensor.device for tensor in (*given, *dict(weights()).values())]
        device = next((each for each in devices if each.type != "cpu"), torch.device("cpu"))
        watch = CallableWatch(
            function,
            weights=weights,
            kept_memory=KeptMemory.RAISE,
            is_compared=False,
            freed=[],
        ).begin(device, args, kwargs, {}, "the function", is_for_replays=False)
        self._codes: set[CodeType] = set()
        self._mode: AbstractContextManager[object] = contextlib.nullcontext()
        pretended = PretendedDevice(self._add) if device.type == "cpu" else None
        self._run = GuardedRun(
            function,
            watch,
            device,
            "the function",
            guard=CaptureGuard.OFF,
            host=pretended,
            codes=self._codes,
        )
        if pretended is not None:
            pretended.operators = self._run.operators
            self._mode = pretended
        self._state = ChangedState({"": function, **named_arguments(args, kwargs)})

    def run(self) -> str | None:
        """Run the call, and return where and why it stopped."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            if self._context is not None:
                session = CaptureSession(FakeDevice(), self._context, object())
                stack.enter_context(session.told_to(self._run))
            stack.enter_context(self._mode)
            try:
                self._run.run(self._call)
            except Exception as error:  # noqa: BLE001 - whatever the function raises
                return _stopped(error)
        self._state.note()
        kept = [found.detail for found in self._run.findings if found.kind is _KEPT]
        for path, text in self._state.changes.items():
            # Where it is a tensor, or a list that has got one, that is found by its memory.
            if not any(f"kept as {path}" in detail for detail in kept):
                self._add(FindingKind.CHANGED_STATE, path, _written_at(path, self._codes), text)
        return None

    @property
    def findings(self) -> list[CaptureFinding]:
        return list(self._run.findings)

    def _add(self, kind: FindingKind, operator: str, place: ProgramPlace, detail: str = "") -> None:
        self._run.add(kind, operator, place, detail)


_KEPT = FindingKind.KEPT_MEMORY


def _written_at(path: str, codes: Iterable[CodeType]) -> ProgramPlace:
    """Return the line of an executed function that writes an attribute or a name."""
    match = _LAST_NAME.search(path)
    touched = None
    for code in sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
        if match is None or is_of_torch(code.co_filename):
            continue
        lines = list(dis.findlinestarts(code))
        for instruction in dis.get_instructions(code):
            if instruction.argval != match.group(1):
                continue
            line = next(number for at, number in reversed(lines) if at <= instruction.offset)
            place = ProgramPlace(code.co_filename, line or 0)
            if instruction.opname in {"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"}:
                return place
            touched = touched or place
    return touched or ProgramPlace("", 0)


def _stopped(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_of_torch(frame.filename)
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{type(error).__name__}: {text}"
