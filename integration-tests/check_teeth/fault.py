"""Faults that are put between a probe and the simulated device."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from npu_graph_check.cann.runtime import Cann

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NO_VARIABLES: Mapping[str, str] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of the device.

    Attributes:
        what: a sentence for the table.
        apply: installs the fault in the process of the probe, before the probe starts.
        environment: variables of that process, such as ``CANN_SIM_FAULTS``.
    """

    what: str
    apply: Callable[[], None] | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def setting(name: str, value: str) -> Fault:
    """Return the fault of a simulator that was set up otherwise."""
    return Fault(what=f"`{name}={value}`", environment={name: value})


def answer(name: str, was: int, becomes: int = 0, *, made: bool = True) -> Fault:
    """Return the fault of a runtime function that answers otherwise.

    Args:
        name: of the function of CANN.
        was: the status that it answers without the fault.
        becomes: the status with it.
        made: the call is made all the same.
    """

    def apply() -> None:
        change_calls(name, lambda status, _: becomes if status == was else status, made=made)

    verb = "answers" if made else "does nothing and answers"
    return Fault(what=f"`{name}` {verb} {becomes} for {was}", apply=apply)


def nothing_done(name: str, *, from_call: int = 1) -> Fault:
    """Return the fault of a runtime function that says success and does nothing.

    Args:
        name: of the function of CANN or of its operators.
        from_call: the first call of it, from 1, that does nothing.
    """

    def apply() -> None:
        change_calls(name, lambda _, __: 0, made=False, from_call=from_call)

    later = "" if from_call == 1 else f" from call {from_call} on"
    return Fault(what=f"`{name}` does nothing{later}", apply=apply)


def change_calls(
    name: str,
    answered: Callable[[int, tuple[Any, ...]], int],
    *,
    made: bool = True,
    from_call: int = 1,
) -> None:
    """Change the results of a function for all probes of this process.

    Args:
        name: name of the function of CANN or of its operators.
        answered: returns the status, given the original status and the arguments; it may write
            through arguments that are references.
        made: whether the call is made; if not, its original status is 0.
        from_call: the first call that is changed, counted from 1.
    """
    counted = [0]
    for road in ("call", "operator"):
        before = getattr(Cann, road)

        @functools.wraps(before)
        def changed(
            self: Cann, called: str, *arguments: Any, _before: Callable[..., int] = before
        ) -> int:
            if called != name:
                return _before(self, called, *arguments)
            counted[0] += 1
            if counted[0] < from_call:
                return _before(self, called, *arguments)
            return answered(_before(self, called, *arguments) if made else 0, arguments)

        setattr(Cann, road, changed)


def called_with(name: str, place: int, value: object) -> Fault:
    """Return the fault of a runtime function that takes another argument than it is given.

    Args:
        name: of the function of CANN.
        place: of the argument, from 0.
        value: what it takes.
    """

    def apply() -> None:
        before = Cann.call

        def changed(self: Cann, called: str, *arguments: Any) -> int:
            given = list(arguments)
            if called == name:
                given[place] = value
            return before(self, called, *given)

        setattr(Cann, "call", changed)  # noqa: B010 - a method is replaced on purpose

    return Fault(what=f"`{name}` takes {value} as argument {place + 1}", apply=apply)


def answers_more(name: str, place: int) -> Fault:
    """Return the fault of a runtime function that gives one more than there is.

    Args:
        name: of the function of CANN.
        place: of the reference that it writes, from 0.
    """

    def one_more(status: int, arguments: tuple[Any, ...]) -> int:
        arguments[place]._obj.value += 1
        return status

    return Fault(what=f"`{name}` gives one more", apply=lambda: change_calls(name, one_more))
