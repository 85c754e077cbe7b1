"""Runs a function eagerly before its capture, to find work that cannot be captured."""

from __future__ import annotations

import enum
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from npu_graph_runtime.capturing.guarding.capture_finding import (
    CaptureFinding,
    FindingKind,
)
from npu_graph_runtime.capturing.guarding.host_calls import watched_host_calls
from npu_graph_runtime.capturing.guarding.operator_findings import OperatorFindings
from npu_graph_runtime.capturing.watching.capture_watch import listed
from npu_graph_runtime.capturing.watching.reachable_values import reachable_values
from npu_graph_runtime.errors import UncapturableError
from npu_graph_runtime.torch_internals import abandon_dispatch_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

    import torch
    from torch import Tensor

    from npu_graph_runtime.capturing.guarding.pretended_device import PretendedDevice
    from npu_graph_runtime.capturing.marked_call import MarkedCall
    from npu_graph_runtime.capturing.watching.capture_watch import CaptureWatch
    from npu_graph_runtime.capturing.watching.program_place import ProgramPlace


class CaptureGuard(enum.Enum):
    """Whether an extra eager run before each capture looks for work that cannot be captured."""

    OFF = "off"
    """No such run: the device refuses what it cannot capture."""

    WARN = "warn"
    """Warn of what the run finds, and go on to the capture."""

    RAISE = "raise"
    """Raise :class:`~npu_graph_runtime.errors.UncapturableError`; nothing is captured."""


class TensorsBesideADevice:
    """Treats CPU tensors as host tensors, unless the CPU is the device; then there are none.

    The memory of the fake device is CPU memory.

    Attributes:
        is_elsewhere: whether it is another device than the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_elsewhere = device.type != "cpu"

    def is_on_host(self, tensor: Tensor) -> bool:
        """Return whether a tensor is on the host."""
        return self.is_elsewhere and tensor.device.type == "cpu"

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a host tensor is in pinned memory."""
        return tensor.is_pinned()


HostTensors: TypeAlias = "TensorsBesideADevice | PretendedDevice"
"""Distinguishes host tensors from device tensors."""


class GuardedRun:
    """One eager run of a function that is about to be captured.

    A :class:`~npu_graph_runtime.capturing.capture_session.BreakListener`: functions between the
    segments of a breakable capture are not watched. ``host`` decides which tensors are on the
    host, by default those of another device than ``device``. ``codes`` receives the code of
    each function that is called.

    Attributes:
        operators: inspects each operator.
        findings: the findings, in the order of the run.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        watch: CaptureWatch,
        device: torch.device,
        subject: str,
        *,
        guard: CaptureGuard,
        host: HostTensors | None = None,
        codes: set[CodeType] | None = None,
    ) -> None:
        host = host or TensorsBesideADevice(device)
        self._function = function
        self._guard = guard
        self._watch = watch
        self._subject = subject
        self._host = host
        self._codes = codes
        self.operators = OperatorFindings(self.add, host)
        self._found: dict[tuple[FindingKind, str, int], CaptureFinding] = {}
        self._names: Mapping[int, str] | None = None

    @property
    def findings(self) -> tuple[CaptureFinding, ...]:
        """The findings, in the order of the run."""
        return tuple(self._found.values())

    def run(self, call: Callable[[], Any]) -> None:
        """Run the call once; raise an error or a warning for its findings.

        Raises:
            UncapturableError: There are findings, and ``guard`` is ``RAISE``.
            Exception: Any error of ``call``, unchanged.
        """
        memory = self._watch.memory
        memory.on_operator, memory.takes_apart = self.operators.see, True
        try:
            with watched_host_calls(self.add, self._host.is_on_host, self._codes), memory:
                result = call()
        except BaseException:
            # An interrupt may have come just as the mode was entered or left.
            abandon_dispatch_mode(memory)
            raise
        self.operators.end()
        self._add_kept(result)
        self._report()

    def _report(self) -> None:
        findings = self.findings
        if not findings or self._guard is CaptureGuard.OFF:
            return
        problem = (
            f"capturing {self._subject}: the eager run before the capture did what a capture "
            f"cannot record, in {len(findings)} places, expected none: "
            f"{listed([*map(str, findings)])}; for the first: {findings[0].remedy}"
        )
        if self._guard is CaptureGuard.RAISE:
            raise UncapturableError(problem, findings)
        warnings.warn(problem, RuntimeWarning, stacklevel=7)

    def add(self, kind: FindingKind, operator: str, place: ProgramPlace, detail: str = "") -> None:
        """Add a finding; only one of each kind per line."""
        if not self._watch.memory.is_looking:
            return
        key = (kind, place.file, place.line)
        if key not in self._found:
            self._found[key] = CaptureFinding(
                kind=kind,
                operator=operator,
                file=place.file,
                line=place.line,
                module=self._name_of(place.module),
                detail=detail,
            )

    # What the capture session tells.

    def call_eagerly(self, call: MarkedCall) -> Any:
        """Call, without watching it, a function that also runs eagerly at each replay."""
        with self._watch.memory.looking(False):
            result = call.run()
        name = getattr(call.function, "__name__", "a function")
        self._watch.end_eager(name, call.arguments, result)
        return result

    def call_named(self, name: str, call: MarkedCall) -> Any:
        """Call a function whose work has a name."""
        del name
        return call.run()

    def _add_kept(self, result: object) -> None:
        if not self._watch.reports_kept:
            return
        for made, path in self._watch.kept(result):
            if made.tensor is not None and self._host.is_on_host(made.tensor):
                continue
            operator, _, _ = made.made_by.partition(" at ")
            place = self.operators.place_of(made.made_by)
            self.add(
                FindingKind.KEPT_MEMORY,
                operator,
                place,
                made.described + (f", kept as {path}" if path else ""),
            )

    def _name_of(self, module: nn.Module | None) -> str:
        if module is None:
            return ""
        if self._names is None:
            function = self._function
            names = {
                id(value): place.path
                for place, _, value in reachable_values(function)
                if isinstance(value, nn.Module)
            }
            if isinstance(function, nn.Module):
                names.setdefault(id(function), type(function).__name__)
            self._names = names
        return self._names.get(id(module), type(module).__name__)
