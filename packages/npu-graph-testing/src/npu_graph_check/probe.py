"""The definition of a probe, and how it records observations."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    import torch

    from npu_graph_runtime import CudaDevice, NpuDevice

NPU = frozenset({"npu"})
NPU_AND_CUDA = frozenset({"npu", "cuda"})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One test of an assumption about the device, run in a separate process.

    Attributes:
        id: ``<group>.<name>``; results are compared by id, so it must not change.
        title: the assumption, as a sentence.
        run: ``<module>:<function>``, imported only in the probe's process. The function's
            parameters are a `Look`, and `argument` if given.
        argument: distinguishes several probes of the same function.
        rows: ids of the rows of docs/fidelity.md that the probe tests.
        limit_s: seconds after which the probe counts as hung and its process is ended.
        devices: the kinds of device that it supports.
        risk: how it may disturb others on the device; such a probe only runs with ``--risky``.
    """

    id: str
    title: str
    run: str
    argument: str = ""
    rows: tuple[str, ...] = ()
    limit_s: float = 60.0
    devices: frozenset[str] = NPU
    risk: str = ""

    @property
    def group(self) -> str:
        """Return the group, the part of the id before the point."""
        return self.id.partition(".")[0]

    def function(self) -> Callable[[Look], None]:
        """Import the probe's function."""
        module, _, name = self.run.partition(":")
        function: Callable[..., None] = getattr(importlib.import_module(module), name)
        if not self.argument:
            return function
        argument = self.argument
        return lambda look: function(look, argument)


class NotTriedError(Exception):
    """The probe cannot look here; the text says why."""


class Look:
    """Records a probe's observations line by line, so that they survive any end of the process.

    Args:
        lines: file to write to, one line of JSON each.

    Attributes:
        found_otherwise: whether something was not as expected.
        has_expected: whether something was expected at all.
        num_seen: number of observations, answers and figures.
    """

    def __init__(self, lines: IO[str], device: str) -> None:
        self._lines = lines
        self.device = device
        self.found_otherwise = False
        self.has_expected = False
        self.num_seen = 0

    @functools.cached_property
    def opened(self) -> NpuDevice | CudaDevice:
        """Device 0 of the kind, for probes that work with torch.

        Raises:
            DeviceUnavailableError: there is none.
        """
        from npu_graph_runtime import CudaDevice, NpuDevice  # noqa: PLC0415 - loads torch

        self.doing("opening the device")
        return CudaDevice() if self.device == "cuda" else NpuDevice()

    @property
    def on(self) -> torch.device:
        """Where tensors of `opened` lie."""
        return self.opened.torch_device

    def doing(self, what: str) -> None:
        """Record the next action. If the probe hangs or crashes, its verdict names this."""
        self._write(doing=what)

    def expect(self, what: str, seen: object, expected: object) -> bool:
        """Record an observation with its expected value; return whether they are equal.

        Args:
            what: what was observed, without addresses and other words that differ between runs.
            seen: a number, text, flag or None, or lists of them; other objects become text.
            expected: a value of the same kinds; floats are compared exactly, and NaN equals NaN.
        """
        shown, wanted = as_plain(seen), as_plain(expected)
        agrees = bool(shown == wanted)
        self.num_seen += 1
        self.has_expected = True
        self.found_otherwise |= not agrees
        self._write(observation={"what": what, "seen": shown, "expected": wanted, "agrees": agrees})
        return agrees

    def figure(self, name: str, value: float, unit: str) -> None:
        """Write down a measured value, which nothing is expected of."""
        self.num_seen += 1
        self._write(figure={"name": name, "value": as_plain(value), "unit": unit})

    def answer(self, question: str, answer: object) -> None:
        """Write down the answer to an open question; ``compare`` shows where two devices differ.

        Args:
            question: what was asked, without words that differ between runs.
            answer: as what is seen in `expect`.
        """
        self.num_seen += 1
        self._write(figure={"name": question, "value": as_plain(answer), "unit": ""})

    def not_tried(self, because: str) -> NoReturn:
        """End the probe: it cannot look here.

        Raises:
            NotTriedError: always.
        """
        raise NotTriedError(because)

    def end(self, verdict: str, because: str = "") -> None:
        """Record the verdict; called by the code that runs the probe."""
        self._write(verdict=verdict, because=because)

    def _write(self, **line: object) -> None:
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()


def as_plain(value: object) -> Any:
    """Return a value as JSON can hold it; floats that JSON has no number for become text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, (list, tuple)):
        return [as_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): as_plain(each) for key, each in value.items()}
    return repr(value)
