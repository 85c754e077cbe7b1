"""The first difference between a replay and an eager run."""

from __future__ import annotations

import dataclasses
import enum

import torch
from torch import Tensor

from npu_graph_runtime.capturing.watching.captured_memory import describe
from npu_graph_runtime.failures.unwritten_memory import unwritten_value


class DifferenceKind(enum.Enum):
    """What happened first."""

    FAILED = "failed"
    """The device reported a failure."""

    HUNG = "hung"
    """The device was not done in time."""

    NAN = "gave NaN"
    """The replay gave NaN, wherever the eager run did."""

    DIFFERED = "differed"
    """Values, a shape, a dtype or a baked value differ."""


class Side(enum.Enum):
    """In which of the two runs it happened."""

    CAPTURED = "captured"
    EAGER = "eager"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FirstDifference:
    """The first segment whose replay failed, hung, or differed from its eager run.

    ``str()`` returns a sentence.

    Attributes:
        kind: what happened.
        place: the segment, or the eager call between two, with its number and the name of its
            layer, the graphed callable, and the key.
        side: for a failure or a hang: in which of the two runs.
        value: the value that differs, such as ``layers.0.mlp: result[0]``; ``None`` if nothing
            was compared.
        index: index of the first element that differs.
        captured: that element after the replay, or another description of the replay's value.
        eager: that element after the eager run, or another description of its value.
        num_different: number of elements that differ.
        max_difference: the largest absolute difference; NaN counts as infinite.
        error: the error that the device reported.
    """

    kind: DifferenceKind
    place: str
    side: Side = Side.CAPTURED
    value: str | None = None
    index: tuple[int, ...] | None = None
    captured: float | str | None = None
    eager: float | str | None = None
    num_different: int = 0
    max_difference: float = 0.0
    error: BaseException | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.place} {self.kind.value} in its {self.side.value} run: {self.error}"
        text = f"{self.place} {self.kind.value}: {self.value}"
        if self.index is None:
            return f"{text} is {self.captured} in the graph and {self.eager} eagerly"
        return (
            f"{text} at {self.index} is {self.captured} in the graph and {self.eager} eagerly; "
            f"{self.num_different} elements differ, by up to {self.max_difference:g}"
        )


def compare_values(
    captured: object, eager: object, *, rtol: float, atol: float
) -> dict[str, object] | None:
    """Compare two values, on the host.

    Elements of ``eager`` equal to `unwritten_value` are not compared; ``rtol`` is relative to it.

    Returns:
        The attributes of the `FirstDifference`, or ``None`` if the values are equal. Objects other
        than tensors are compared if they have the same plain type; otherwise they count as equal.
    """
    if not (isinstance(captured, Tensor) and isinstance(eager, Tensor)):
        return _compare_others(captured, eager)
    if captured.shape != eager.shape or captured.dtype != eager.dtype:
        return _differed(_described(captured), _described(eager))
    ours, theirs = captured.detach().cpu(), eager.detach().cpu()
    if not ours.numel():
        return None
    if ours.is_complex():
        ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
    written = theirs != unwritten_value(theirs.dtype)
    if not ours.is_floating_point():
        bad = (ours != theirs) & written
        return _elements(DifferenceKind.DIFFERED, bad, ours, theirs) if bad.any() else None
    ours, theirs = ours.double(), theirs.double()
    wrong = ours.isnan() & written
    if wrong.any():
        return _elements(DifferenceKind.NAN, wrong, ours, theirs)
    near = (ours - theirs).abs() <= atol + rtol * theirs.abs()
    bad = ~((ours == theirs) | near) & written
    return _elements(DifferenceKind.DIFFERED, bad, ours, theirs) if bad.any() else None


def _compare_others(captured: object, eager: object) -> dict[str, object] | None:
    if isinstance(captured, Tensor) or isinstance(eager, Tensor):
        return _differed(_described(captured), _described(eager))
    plain = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)
    if isinstance(captured, plain) and isinstance(eager, plain) and captured != eager:
        return _differed(repr(captured), repr(eager))
    return None


def _differed(captured: str, eager: str) -> dict[str, object]:
    return {"kind": DifferenceKind.DIFFERED, "captured": captured, "eager": eager}


def _elements(
    kind: DifferenceKind, bad: Tensor, captured: Tensor, eager: Tensor
) -> dict[str, object]:
    index = tuple(int(place) for place in bad.nonzero()[0])
    distance = (captured.double() - eager.double()).abs()[bad]
    return {
        "kind": kind,
        "index": index,
        "captured": float(captured[index]),
        "eager": float(eager[index]),
        "num_different": int(bad.sum()),
        "max_difference": float(distance.nan_to_num(nan=torch.inf).max()),
    }


def _described(value: object) -> str:
    return describe(value) if isinstance(value, Tensor) else repr(value)
