"""Runs one step of many eagerly as well, and compares it with its graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_graph_runtime.errors import ShadowDifferenceError
from npu_graph_runtime.failures.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from npu_graph_runtime.capturing.graphed_callable import GraphedCallable
    from npu_graph_runtime.failures.difference import FirstDifference


class ShadowValidation:
    """Runs one in ``every`` steps eagerly as well, and compares it with the results of its graphs.

    Use it in a service to detect that a graph no longer computes what the model does: because a
    value was fixed at capture, a weight was replaced, or memory was reused. It compares the same
    values as :func:`~npu_graph_runtime.diagnosis.find_first_difference`.

    A compared step changes memory once, like any other step:

    - Arguments of the graphed callables, and ``written``, are copied before the eager run and
      restored before the replay.
    - So is memory that the eager run reads and then changes: counters, running sums, shifted
      states. The operators of the eager run show which memory that is.
    - Memory that it writes before reading is not copied. The replay writes it again, with the
      same values if the graph is right. Key/value caches are usually of this kind. A cache that is
      written again after it was read, as with several draft steps in one graph, is copied.
    - Python values that the function changes are changed by the eager run, as by any eager call.

    Do not use it for steps that draw random numbers. Work on streams other than the current one is
    not restored, and neither is memory that a kernel writes without having it as an argument; name
    such memory in ``written``.

    A compared step costs an eager run, two device synchronisations, the copies above, and copies to
    the host of everything compared, for each graphed callable, or for each segment of a graph with
    breaks. The eager run needs memory in addition to that of the graphs. Any other step costs one
    counter. Steps in a capture session are not compared. Ranks that run collectives must use the
    same ``every`` and run the same steps.

    Args:
        graphed: the callables of the step, on one device and with one context.
        every: compare the last of this many steps.
        written: more tensors that the step changes, by name, or a function that returns them.
        rtol: tolerated difference of floats, relative to the eager value.
        atol: tolerated absolute difference of floats.
        seconds: time limit of the device for one piece, and for the work queued before it.
        on_difference: called with a difference, such as ``logger.error``; the step then returns
            the results of its graphs. ``None`` raises an error instead.

    Attributes:
        num_steps: steps so far.
        num_compared: compared steps.
        num_different: steps in which a difference was found.

    Raises:
        ValueError: ``every`` is less than 1, or no callable is given.
    """

    def __init__(
        self,
        graphed: Sequence[GraphedCallable],
        *,
        every: int,
        written: Mapping[str, Tensor] | Callable[[], Mapping[str, Tensor]] | None = None,
        rtol: float = 0.0,
        atol: float = 0.0,
        seconds: float = 60.0,
        on_difference: Callable[[FirstDifference], object] | None = None,
    ) -> None:
        if every < 1 or not graphed:
            raise ValueError(
                f"validating steps: every is {every} and {len(graphed)} callables are given, "
                "expected at least 1 of both"
            )
        self._graphed = tuple(graphed)
        self._every = every
        self._written = written
        self._tolerance = (rtol, atol)
        self._seconds = seconds
        self._on_difference = on_difference
        self.num_steps = 0
        self.num_compared = 0
        self.num_different = 0

    @property
    def is_next(self) -> bool:
        """Whether the next step is to be compared."""
        return (self.num_steps + 1) % self._every == 0

    def run(self, call: Callable[[], Any], *, num_tokens: int | None = None) -> Any:
        """Run a step, compare it if it is its turn, and return the result of the call.

        Args:
            call: launches one step, as for `find_first_difference`.
            num_tokens: real tokens of the step, as for `find_first_difference`.

        Raises:
            ShadowDifferenceError: A difference was found, and there is no ``on_difference``; or
                the graph broke at other functions than at capture, so the step did not end.
            DeviceError: The device failed, or exceeded the time limit.
            Exception: Any error of ``call``, unchanged.
        """
        is_turn = self.is_next
        self.num_steps += 1
        if not is_turn or self._graphed[0].context.capture_session is not None:
            return call()
        self.num_compared += 1
        written = self._written() if callable(self._written) else self._written
        comparison = Comparison(
            self._graphed, written or {}, self._tolerance, num_tokens, self._seconds, goes_on=True
        )
        results = comparison.follow(call)
        difference = comparison.difference
        if difference is None:
            return results[0]
        self.num_different += 1
        if self._on_difference is not None:
            self._on_difference(difference)
        if difference.error is not None:
            raise difference.error
        if self._on_difference is None or not results:
            raise ShadowDifferenceError(
                f"comparing step {self.num_steps} with its eager run: {difference}; expected the "
                "same values. Release the graphs and capture them again if what the capture baked "
                "in has changed, or let the graph key say it",
                difference,
            )
        return results[0]
