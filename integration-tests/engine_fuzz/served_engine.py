"""An engine as an episode sees it: its steps are run, checked and compared with the reference.

Note [what is right]. A step is right if its result is bitwise identical to the reference, or if it
raises an error of our packages for which the episode has a reason. After the error the engine does
what the documentation says, and the repeated step must be right. Everything else is a failure:
another value, another error, an error without a reason, a wait that never ends, thread state left
over, or a write to memory of another owner.
"""

from __future__ import annotations

import contextlib
import gc
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import cann_sim
from attn_update import AttnUpdateError, UpdateError
from engine_fuzz.engines.fuzzed_model import VOCABULARY
from engine_fuzz.engines.sequences import Sequences
from engine_fuzz.interruption import INTERRUPTS, call_interrupted
from engine_fuzz.moved_tensors import OtherTensors
from npu_compile import NpuCompileError
from npu_graph_runtime import GraphRuntimeError, RunMode
from npu_graph_runtime.diagnosis import diagnose, find_error_code
from npu_graph_runtime.errors import DeadlockError, DeviceTimeoutError, UnknownDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from engine_fuzz.engines.callable_engine import CallableEngine
    from engine_fuzz.engines.reference import Reference
    from engine_fuzz.engines.runner_engine import RunnerEngine
    from engine_fuzz.engines.sequences import Batch
    from engine_fuzz.episode_counts import EpisodeCounts
    from npu_graph_runtime import NpuDevice

_Result = TypeVar("_Result")

_NAMED = (GraphRuntimeError, AttnUpdateError, NpuCompileError)
_HANGS = (DeadlockError, DeviceTimeoutError)
_ATTEMPTS = 3


class EpisodeFailure(Exception):  # noqa: N818 - what the fuzzer looks for
    """A failure of an episode.

    Attributes:
        sort: ``wrong``, ``hang``, ``refused``, ``crash``, ``left`` or ``overwritten``.
    """

    def __init__(self, sort: str, text: str) -> None:
        super().__init__(f"{sort}: {text}")
        self.sort = sort


class ServedEngine:
    """An engine, its reference and its sequences.

    Args:
        engine: the engine under test.
        reference: the engine it is compared with.
        counts: where to count.

    Attributes:
        engine: as passed.
        reference: as passed.
        sequences: the sequences that it serves.
        others: tensors in memory that it released.
        reasons: why it may reject steps until its graphs are captured again.
    """

    def __init__(
        self,
        engine: CallableEngine | RunnerEngine,
        reference: Reference,
        counts: EpisodeCounts,
    ) -> None:
        self.engine = engine
        self.reference = reference
        self.sequences = Sequences()
        self.others = OtherTensors(engine.device)
        self.reasons: list[str] = []
        self._habit = engine.shape.quirk
        self._interrupt = INTERRUPTS[engine.shape.interrupt]
        self._counts = counts
        self._steps = 0
        self._stream = engine.device.current_stream()

    def release(self) -> None:
        """Give all graphs up."""
        self.engine.release()
        self.reasons.clear()

    def join(self, draw: int, length: int) -> None:
        """Add a sequence, if there is room."""
        random = Random(draw)
        batch = self.sequences.join([random.randrange(VOCABULARY) for _ in range(length)])
        if batch is not None:
            self.step([batch])

    def _mend(self) -> None:
        """Give the habit of the model up that something was refused for."""
        self._habit = ""
        self.engine.mend()
        self.reference.model.mend()

    def batches(self, options: Mapping[str, Any]) -> list[Batch]:
        """Return decode steps of some sequences; a sequence joins where there is none."""
        random, sequences = Random(options["draw"]), self.sequences
        for number in sequences.living:
            if len(sequences.living) > 1 and sequences.is_full(number):
                sequences.leave(number)
        if not sequences.living or sequences.is_full(sequences.living[0]):
            if sequences.living:
                sequences.leave(sequences.living[0])
            self.join(options["draw"], 3)
        batches = []
        for _ in range(options["steps"]):
            living = [each for each in sequences.living if not sequences.is_full(each)]
            if not living:
                break
            chosen = random.sample(living, random.randint(1, len(living)))
            tokens = [random.randrange(VOCABULARY) for _ in chosen]
            batches.append(sequences.decode(chosen, tokens))
        return batches

    def moved(self, reason: str, *, is_checked: bool) -> None:
        """Note that memory of a model has moved; where its owner has to say so, say it."""
        self.reasons.append(reason)
        if not is_checked:
            return
        try:
            self.engine.check_weights()
        except _NAMED as error:
            self._note(error, reason)
            self.recapture()

    def step(
        self,
        batches: list[Batch],
        reason: str = "",
        expected: type[BaseException] | tuple[type[BaseException], ...] = (),
        *,
        around: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
        is_recaptured: bool = False,
        run: Callable[[Batch], Tensor] | None = None,
        current: NpuDevice | None = None,
        interrupt_after: float | None = None,
    ) -> None:
        """Run steps one after the other without a wait, and compare them.

        Args:
            batches: the steps.
            reason: why the first attempt may fail; empty for none.
            expected: errors that it may fail with, besides those of a signal.
            around: entered around the first attempt.
            is_recaptured: whether graphs are captured again where it fails.
            run: runs a step, in place of the engine's own function.
            current: the device that is the current one in the first attempt.
            interrupt_after: seconds until a signal comes into the first attempt.
        """
        reference = self.reference
        references = [reference.run(batch, self.engine.factor).clone() for batch in batches]
        # What fails from here on is of the engine.
        self.engine.device.synchronize()
        for attempt in range(_ATTEMPTS):
            is_first = attempt == 0
            entered = around() if around is not None and is_first else contextlib.nullcontext()
            try:
                with entered:
                    found = self._run_or_interrupt(
                        partial(self._run, batches, run, current if is_first else None),
                        interrupt_after if is_first else None,
                    )
            except BaseException as error:  # noqa: BLE001 - it is judged
                allowed = expected if is_first else ()
                self._judge(error, reason if is_first else "", allowed)
                self.settle()
                if self.reasons or (is_recaptured and is_first):
                    self.recapture()
            else:
                if found is not None:
                    self._compare(found, references, batches, attempt)
                    self._steps += len(batches)
                    self._counts.steps += len(batches)
                    return
                self._counts.interrupted["step"] += 1
                self.engine.context.reset()
                self.settle()
            # The steps are void: what counts them is brought back.
            self.engine.model.set_counters(self._steps)
        raise EpisodeFailure(
            "refused", f"{_ATTEMPTS} attempts of a step failed, of an engine that has recovered"
        )

    def capture_interrupted(self, seconds: float) -> None:
        """Capture, while a signal comes."""
        done = self._run_or_interrupt(lambda: [self.engine.capture()], seconds)
        if done is None:
            self._counts.interrupted["capture"] += 1
            self.engine.context.reset()

    def _run_or_interrupt(
        self, run: Callable[[], list[_Result]], seconds: float | None
    ) -> list[_Result] | None:
        """Return the result of a function, or ``None`` if a signal ended it."""
        if seconds is None:
            return run()
        name = self.engine.shape.interrupt
        return call_interrupted(run, seconds=seconds, name=name)

    def _run(
        self,
        batches: list[Batch],
        run: Callable[[Batch], Tensor] | None,
        current: NpuDevice | None,
    ) -> list[Tensor]:
        engine = self.engine
        run = engine.run if run is None else run
        found = []
        for batch in batches:
            if current is not None:
                current.bind_thread()
            found.append(run(batch).clone())
        engine.drain()
        engine.device.synchronize()
        return found

    def _judge(
        self,
        error: BaseException,
        reason: str,
        expected: type[BaseException] | tuple[type[BaseException], ...],
    ) -> None:
        """Note an error that there is a reason for; any other is a failure."""
        if isinstance(error, EpisodeFailure):
            raise error
        known = _diagnosed(error)
        if isinstance(known, _HANGS):
            raise EpisodeFailure("hang", f"{reason or self.reasons}: {known}") from error
        if reason.startswith("signal") and _has_cause(known, self._interrupt):
            expected = _NAMED
            self.engine.context.reset()
        is_expected = bool(expected) and isinstance(known, expected)
        is_named = isinstance(known, _NAMED) and not isinstance(known, UnknownDeviceError)
        if is_expected and reason:
            self._note(known, reason)
        elif is_named and self.reasons:
            self._note(known, self.reasons[-1])
        elif is_named and self._habit:
            self._note(known, self._habit)
            self.reasons.append(self._habit)
            self._mend()
        else:
            sort = "refused" if is_named else "crash"
            raise EpisodeFailure(sort, f"{type(known).__name__}: {known}") from error

    def _note(self, error: BaseException, reason: str) -> None:
        self._counts.errors[f"{reason}: {type(error).__name__}"] += 1

    @contextlib.contextmanager
    def expecting(
        self,
        reason: str,
        expected: type[BaseException] | tuple[type[BaseException], ...] = (),
        *,
        or_wrong: str = "",
    ) -> Iterator[None]:
        """Check that an error of the block has a reason.

        Args:
            reason: reason for an error.
            expected: errors that the reason explains, besides those of a signal.
            or_wrong: the failure to report if there is no error; empty if that is right too.
        """
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - it is judged
            self._judge(error, reason, expected)
            self.settle()
        else:
            if or_wrong:
                raise EpisodeFailure("wrong", f"{reason}: {or_wrong}")

    def capture(self) -> None:
        """Capture; a model whose habit is refused is mended and captured again."""
        try:
            self.engine.capture()
            self.engine.device.synchronize()
        except BaseException as error:  # noqa: BLE001 - it is judged
            self._judge(error, "", ())
            self.settle()
            self.release()
            self.engine.capture()
        self.engine.model.set_counters(self._steps)

    def recapture(self) -> None:
        """Release all graphs and capture them again."""
        self.release()
        self.capture()

    def settle(self) -> None:
        """Finish the work of the device, and make it usable again after a failure."""
        with contextlib.suppress(UpdateError):
            self.engine.drain()
        try:
            self.engine.device.synchronize()
        except RuntimeError as error:
            known = _diagnosed(error)
            if isinstance(known, _HANGS):
                raise EpisodeFailure("hang", f"after an error: {known}") from error
        cann_sim.restart_devices()
        self._check_left()

    def _check_left(self) -> None:
        """See that no step and no capture that ended has left the thread in another state."""
        engine = self.engine
        stream = engine.device.current_stream()
        left = {
            "the current stream": stream != self._stream,
            "a switched-off garbage collector": not gc.isenabled(),
            "an open capture session": engine.context.capture_session is not None,
            "a run mode": engine.context.mode is not RunMode.EAGER,
        }
        found = [name for name, is_left in left.items() if is_left]
        if found:
            gc.enable()
            engine.device.use_stream(self._stream).__enter__()
            raise EpisodeFailure("left", f"after an error: {', '.join(found)}")

    def _compare(
        self,
        found: list[Tensor],
        expected: list[Tensor],
        batches: list[Batch],
        attempt: int,
    ) -> None:
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not _are_equal(one, other):
                rows = "decode" if batches[number].is_decode else "prefill"
                different = (one != other).any(-1).nonzero().flatten().tolist()
                raise EpisodeFailure(
                    "wrong",
                    f"step {number} of {len(found)} ({rows}, {batches[number].num_rows} of "
                    f"{batches[number].size} rows) differs in rows {different}, in attempt "
                    f"{attempt + 1}; reasons: {self.reasons}",
                )
        counters = zip(self.engine.model.counters(), self.reference.model.counters(), strict=True)
        for one, other in counters:
            if not _are_equal(one, other):
                raise EpisodeFailure(
                    "wrong",
                    f"a counter is {one.item()}, expected {other.item()}, in attempt "
                    f"{attempt + 1}; reasons: {self.reasons}",
                )

    def compare_caches(self) -> None:
        if not self.others.are_whole():
            raise EpisodeFailure("overwritten", "memory that was given up was written")
        pairs = zip(self.engine.model.caches(), self.reference.model.caches(), strict=True)
        for one, other in pairs:
            # Block 0 is that of padding.
            if not _are_equal(one[1:], other[1:]):
                raise EpisodeFailure("wrong", "keys or values of the sequences differ")


def _diagnosed(error: BaseException) -> BaseException:
    """Return an error of torch_npu as the typed one that our packages make of it."""
    if isinstance(error, _NAMED) or not isinstance(error, RuntimeError):
        return error
    if find_error_code(error) is None:
        return error
    return diagnose(error, doing="running", subject="a step")


def _has_cause(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether an error came of another one."""
    cause = error.__cause__ or error.__context__
    return cause is not None and (isinstance(cause, kind) or _has_cause(cause, kind))


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return one.cpu().numpy().tobytes() == other.cpu().numpy().tobytes()
