"""The update lane: the stream on which a device's captured launches are rewritten, step by step.

Names. C is the stream that replays, U the lane's stream. The captured graph of one key has, for
each layer l, a wait for the external event x(l), which leaves it unset, and then the launch t(l).
Step i of that key puts R(i), the replay, on C and then, for each layer in order, u(i, l), the
update of t(l), and s(i, l), the record that sets x(l), on U. The host never waits.

Note [ordering]. After each R(i) an event d(i) is recorded on C, and U waits for d(i - 1) before
u(i, 0). From this, however far ahead of the device the host runs:

1. No launch runs with the arguments of a later step. u(i, l) comes after d(i - 1) on U, so R(i - 1)
   and all replays before it are finished when a task is rewritten.
2. No record is lost or taken by an earlier replay. s(i, l) comes after d(i - 1), so the waits of
   R(i - 1), which unset x(l), are over when s(i, l) sets it: exactly one record for each wait.
3. No launch runs with the arguments of an earlier step. By 2, x(l) is unset when R(i) begins, so
   t(l) in R(i) waits for s(i, l), which follows u(i, l) on U.
4. No deadlock. R(i) waits for work on U that waits only for R(i - 1), and so on down to the first
   replay, which waits for updates that wait for nothing.

d is kept for each key and not for the stream: u(i, l) need not wait for the replays of other keys
or other models, so their updates run while those graphs do. Each step has a new event, for a wait
that was already queued must never move to a later recording: by 4's chain that would be a deadlock.

The host values of a step are copied when they are checked and again when the operator is launched,
so the caller may reuse its lists at once.

Note [failure]. When an update of step i fails, the remaining events are recorded all the same, so
that R(i) ends; then `UpdateError` is raised. Whether x(l) of the failed layer is set once too often
cannot be known, and neither can, when the replay call itself fails, whether R(i) was queued. So the
key is marked unsettled, and its next step updates first: U waits for d(i - 1), all updates run, C
waits for U, then R(i) runs. 1 and 2 hold as before, 3 and 4 by the order of the streams, without
the events; and the replay leaves all of them unset, as 3 demands from then on.

Note [direct launch]. On a device with a launch queue U may be a stream without it, see
`attn_update.task_device`. What is put on U then reaches the device at once, what is put on C
later. Only one wait crosses in that direction, that of U for d(i - 1), so the queue is flushed
before it. With an updater it is flushed after R(i) instead, where replays have mostly done so, and
d(i) is recorded past it: then nothing of a step stands in the queue, and its thread need not wake.

Note [taken]. Bound launches may take plain lengths and tensors while they check them, before
anything is queued. They are ahead of the captured graph then, until the step is issued: so the step
before is forgotten at that moment, and should this one fail anywhere, the next one gives all of its
values.

Note [worker]. With a worker thread the caller puts R(i) and d(i) on C, and the thread the rest of
the step on U, step after step in the caller's order: what is on C and on U is the same as without.
Only failures differ: the caller may have gone on when an update fails. The graph is released as
always, and the error is raised by the next call of `run`, `drain` or `close`, before it launches
anything. A step that must update first waits for the thread.

Note [two phases]. An engine that replays itself brackets its replay: `begin` checks and opens a
step, `finish` records d(i) and issues the updates. What is put on C and on U is that of `run`.
While a step is open no other is begun: its updates would queue on U before those that R(i)
waits for. A step that is begun while the thread's former one is open says that the former was given
up: its graph is released.

Note [interrupts]. A signal handler may raise wherever Python looks for signals, such as at the
entry of a function: also between R(i) and the updates that it waits for. So whatever can leave a
graph waiting runs inside a `try` that was entered before it. The first thing that its handler does
is a call of C that starts a thread, which releases the graph. No signal handler runs on that
thread, nor between the exception and that call (but in Python 3.10, for a second signal). The step
counts as failed. A signal handler that raises again ends only the wait for the thread, and the next
step waits for it. The rest is undone by assignments, between which Python does not look either.

Note [one graph]. On a device that asks (`attn_update.task_device.GuardingDevice`) the graph of each
recorded key is replayed in a step of its own key only, and once: a replay of another is refused
before it is launched, and so is a step whose replay did not come to its graph, whose updates would
set events that nobody waits for. Replays outside of any step are not refused.
"""

from __future__ import annotations

import threading
import time
from _thread import start_new_thread
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import torch

from attn_update.errors import LaneError, UpdateError
from attn_update.issuing.issuer_choice import choose_issuer
from attn_update.lane.replay_state import ReplayState
from attn_update.lane.update_worker import UpdateWorker
from attn_update.recording.tensor_memory import is_same_memory
from attn_update.task_device import GuardingDevice, bind_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from attn_update.issuing.issuer_choice import UpdaterChoice
    from attn_update.issuing.operator_issuer import BoundPlan, OperatorIssuer
    from attn_update.issuing.updater import Changes, Updater
    from attn_update.planning.update_plan import StepParameters, UpdatePlan
    from attn_update.recording.record import KeyRecords
    from attn_update.task_device import Stream, TaskDevice

_Result = TypeVar("_Result")

_SECONDS_BETWEEN_LOOKS = 0.0005


@dataclass(kw_only=True)
class LaneCounters:
    """Counts the work of a lane.

    Attributes:
        steps: Successful steps; with a worker thread, those passed to it.
        updates: Updated launches.
        skipped: Launches not updated because their step parameters had not changed.
        failures: Steps that failed after something was launched.
        updater_steps: Steps whose updates the lane's updater launched.
    """

    steps: int = 0
    updates: int = 0
    skipped: int = 0
    failures: int = 0
    updater_steps: int = 0

    def count_updates(self, bound: BoundPlan, changes: Changes) -> None:
        """Count the launches of a successful step."""
        if bound.launches is not None:
            self.updater_steps += 1
        for size, changed in zip(bound.plan.slot_sizes, changes, strict=True):
            if changed is None:
                self.skipped += size
            else:
                self.updates += size


class _Step(NamedTuple):
    """A checked step: its values, if known here, and those that changed."""

    state: ReplayState
    bound: BoundPlan
    values: tuple[Mapping[str, object], ...] | None
    changes: Changes


@dataclass(slots=True, kw_only=True)
class _OpenStep:
    """A step whose replay is queued, or is about to be; and the progress of its release.

    Attributes:
        is_begun: Whether the thread of the release was started, or is just about to be.
        is_done: Whether the release has ended.
        error: Its exception.
    """

    step: _Step
    issuer: OperatorIssuer
    stream: Stream
    previous: Any
    updates_first: bool
    thread: int
    is_begun: bool = False
    is_done: bool = False
    error: BaseException | None = None


class _Expected(threading.local):
    step: object = None


class UpdateLane:
    """Updates and replays captured graphs of one device, in order and without a host wait.

    Create one per device and share it between models. Steps of several threads run one after the
    other, for as long as the host needs to launch them. You own the lane and close it.

    Args:
        device: The device of the graphs.
        updater: How updates are launched; only the cost differs. See
            `attn_update.issuing.issuer_choice.UpdaterChoice`. A native updater is built by the
            first lane on the machine that uses it.
        native_folder: Folder of the built files of the native updater; by default
            ``~/.cache/attn-update``. Set it on hosts without a writable home folder.
        worker: Whether a worker thread launches the updates, so that `run` returns as soon as
            the replay is queued; see Note [worker].

    Attributes:
        counters: Steps, updates and failures so far.
        updater: How updates are launched: ``native``, ``kernels`` or ``operators``. A plan that
            it does not support is launched by operators: see `unbound_reason`.
        updater_reason: Why this updater is used.

    Raises:
        LaneError: The device does not support the chosen updater.
        NativeUnavailableError: The native updater was chosen and cannot be built here.
    """

    def __init__(
        self,
        device: TaskDevice,
        *,
        updater: UpdaterChoice | Updater = "auto",
        native_folder: str | PathLike[str] | None = None,
        worker: bool = False,
    ) -> None:
        self.device = device
        self.counters = LaneCounters()
        self._issuer: OperatorIssuer | None
        self._issuer, self.updater, self.updater_reason = choose_issuer(
            device, updater=updater, native_folder=native_folder
        )
        self._worker = UpdateWorker(device) if worker else None
        self._lock = threading.Lock()
        self._checked_stream: Stream | None = None
        self._owner: int | None = None
        self._open: _OpenStep | None = None
        guarding = device if isinstance(device, GuardingDevice) else None
        self._expected = _Expected() if guarding is None else guarding.expected_replay

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], _Result] | None = None,
    ) -> _Result:
        """Run one step: check, replay and update. Returns as soon as everything is queued.

        Args:
            plan: Plan of the graph that `replay` replays.
            parameters: Parameters of this step.
            replay: Queues the replay on the current stream, and nothing that waits for it. By
                default replays the graph that was passed to `Recorder.recording`.

        Returns:
            The result of `replay`.

        Raises:
            AttnUpdateError: From `UpdatePlan.check`; nothing was launched.
            LaneError: The lane is closed, this call is inside a `replay`, the current stream is
                the lane's own, another lane updates this key, or `replay` belongs to another graph
                than the one recorded under the key; nothing was launched.
            UpdateError: An update failed; see Note [failure].
        """
        replay = _own_replay(plan, replay)
        self._refuse_nested()
        with self._lock:
            self._owner = threading.get_ident()
            try:
                issuer = self._require_issuer()
                self._check_none_open()
                opened = self._prepare(plan, parameters, issuer)
                expected, state = self._expected, opened.step.state
                before = expected.step
                try:
                    self._open = opened
                    state.open_step(is_run=True)
                    expected.step = state
                    if opened.updates_first:
                        self._update_first(opened)
                    result = replay()
                    self._complete(opened)
                except BaseException as error:
                    # Nothing that Python runs may come before the thread: Note [interrupts].
                    opened.is_begun = True
                    release = self._release_alone
                    try:
                        start_new_thread(release, (opened,))
                    except RuntimeError:
                        release(opened)
                    self._await_release(opened)
                    refusal, state.refusal = state.refusal, None
                    if refusal is not None:
                        raise LaneError(refusal) from error
                    raise
                finally:
                    expected.step = before
                    state.is_open = state.is_run = False
                self._open = None
                return result
            finally:
                self._owner = None

    def begin(self, plan: UpdatePlan, parameters: StepParameters) -> None:
        """Begin a step whose graph you replay yourself, on the current stream.

        After the replay call `finish`, or `abandon` if the replay failed. Until then the graph
        waits on the device, and the host must not wait for it. See Note [two phases].

        Args:
            plan: Plan of the graph that is replayed.
            parameters: Parameters of this step.

        Raises:
            AttnUpdateError: From `UpdatePlan.check`; nothing was launched.
            LaneError: As for `run`; or a step was begun and not finished. If this thread began it,
                its graph is released, its results are invalid, and the next step works.
            UpdateError: An update failed in a step that updates first; see Note [failure].
        """
        self._refuse_nested()
        with self._lock:
            self._owner = threading.get_ident()
            try:
                issuer = self._require_issuer()
                self._check_none_open()
                opened = self._prepare(plan, parameters, issuer)
                self._open = opened
                opened.step.state.open_step(is_run=False)
                self._expected.step = opened.step.state
                if not opened.updates_first:
                    return
                try:
                    self._update_first(opened)
                except BaseException:
                    # Nothing that Python runs may come before the thread: Note [interrupts].
                    opened.is_begun = True
                    release = self._release_alone
                    try:
                        start_new_thread(release, (opened,))
                    except RuntimeError:
                        release(opened)
                    self._await_release(opened)
                    raise
            finally:
                self._owner = None

    def finish(self) -> None:
        """Launch the updates of the step that was begun; returns as soon as everything is queued.

        Raises:
            LaneError: No step was begun, the lane is closed, or the graph of the step was not
                replayed.
            UpdateError: An update failed; see Note [failure].
        """
        self._refuse_nested()
        with self._lock:
            self._owner = threading.get_ident()
            try:
                opened = self._require_open("finishing")
                state, expected = opened.step.state, self._expected
                try:
                    self._complete(opened)
                except BaseException:
                    # Nothing that Python runs may come before the thread: Note [interrupts].
                    opened.is_begun = True
                    release = self._release_alone
                    try:
                        start_new_thread(release, (opened,))
                    except RuntimeError:
                        release(opened)
                    self._await_release(opened)
                    raise
                finally:
                    if expected.step is state:
                        expected.step = None
                    state.is_open = False
                self._open = None
            finally:
                self._owner = None

    def abandon(self) -> None:
        """Abandon the step that was begun, whether its graph was replayed or not; never hangs.

        If the graph was replayed, it is released and its results are invalid. The next step works.

        Raises:
            LaneError: No step was begun, or the lane is closed.
        """
        self._refuse_nested()
        with self._lock:
            self._release_open(self._require_open("abandoning"))

    def unbound_reason(self, plan: UpdatePlan) -> str | None:
        """Return why launches of a plan are called one by one, or None if `updater` launches them.

        Args:
            plan: A plan of which a step was run.
        """
        state = plan.records.owner
        if isinstance(state, ReplayState) and state.lane is self:
            for bound in (state.bound, state.bound_before):
                if bound is not None and bound.plan is plan:
                    return bound.unbound_reason
        return "no step of it was among the latest of its key on this lane"

    def drain(self) -> None:
        """Wait until the lane's thread has launched all updates; the device may still be busy.

        Raises:
            UpdateError: An update failed; see Note [worker].
        """
        with self._lock:
            self._drain()
            self._raise_failures()

    def close(self) -> None:
        """Release the stream. Replays already queued finish; later steps are rejected.

        Another lane may then update the same keys. Its first step of each key waits on the host for
        the latest replay of that key.

        Raises:
            UpdateError: An update in the lane's thread failed; the lane is closed nevertheless.
        """
        with self._lock:
            if self._open is not None:
                self._release_open(self._open)
            self._issuer = None
            if self._worker is not None:
                self._worker.close()
                self._raise_failures()

    def _refuse_nested(self) -> None:
        # An interrupt may have left the owner of a step that is over.
        if self._owner == threading.get_ident() and self._lock.locked():
            raise LaneError(
                "running a step: this thread is inside a step of the same lane; a replay must not "
                "run another step",
            )

    def _require_issuer(self) -> OperatorIssuer:
        if self._issuer is None:
            raise LaneError("running a step: the update lane is closed; make a new one")
        return self._issuer

    def _check_none_open(self) -> None:
        opened = self._open
        if opened is None:
            return
        if opened.is_begun:
            self._await_release(opened)
            return
        if opened.thread == threading.get_ident():
            self._release_open(opened)
        self._refuse_open(opened)

    def _refuse_open(self, opened: _OpenStep) -> NoReturn:
        key = opened.step.state.key
        if opened.thread != threading.get_ident():
            raise LaneError(
                f"running a step: another thread has begun a step of key {key!r} and not finished "
                f"it; finish it first, or give each thread a lane and keys of its own",
            )
        raise LaneError(
            f"running a step: the step of key {key!r} before it was begun and never finished. Its "
            f"graph was released; throw its results away, and those of this step, which was not "
            f"run. Call finish or abandon after each begin",
        )

    def _require_open(self, what: str) -> _OpenStep:
        self._require_issuer()
        opened = self._open
        if opened is not None and opened.is_begun:
            self._await_release(opened)
            opened = None
        if opened is None:
            raise LaneError(f"{what} a step: none was begun, or it was given up; call begin first")
        return opened

    def _release_open(self, opened: _OpenStep) -> None:
        """Release the graph of a step that is open."""
        state, expected = opened.step.state, self._expected
        if not opened.is_begun:
            opened.is_begun = True
            try:
                start_new_thread(self._release_alone, (opened,))
            except RuntimeError:
                self._release_alone(opened)
        self._await_release(opened)
        state.is_open = False
        if expected.step is state:
            expected.step = None

    def _await_release(self, opened: _OpenStep) -> None:
        """Wait for the release of a step, and undo what an exception may have left of it.

        An interrupt ends the wait but not the release.
        """
        while not opened.is_done:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if opened.error is not None:
            raise opened.error
        self._open = None
        own = opened.issuer.stream
        if self.device.current_stream() == own and opened.stream != own:
            # An interrupt at the end of `use_stream`, which is Python's.
            self.device.use_stream(opened.stream).__enter__()

    def _prepare(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        issuer: OperatorIssuer,
    ) -> _OpenStep:
        if self._worker is not None:
            self._raise_failures()
        plan.check_key(parameters)
        current = self.device.current_stream()
        if current is not self._checked_stream:
            self._check_stream(issuer.stream, current, plan)
        state = plan.records.owner
        if not isinstance(state, ReplayState) or state.lane is not self:
            state = self._take_over(plan.records)
        bound = state.bound
        if bound is None or bound.plan is not plan:
            before = state.bound_before
            if before is None or before.plan is not plan:
                before = issuer.bind(plan)
            # What the launches of another plan were given, these do not have.
            state.bound, state.bound_before, state.latest = before, bound, None
            bound = before
        step = self._check(state, bound, parameters)
        previous, last = state.replayed, state.replayed_on
        if previous is not None and last is not current and last != current:
            # Replays of one graph have no order but that of their streams.
            issuer.order_behind(previous, current)
        updates_first = state.unsettled
        if not updates_first and self._worker is None and previous is not None:
            issuer.wait_for_replay(previous)
        return _OpenStep(
            step=step,
            issuer=issuer,
            stream=current,
            previous=previous,
            updates_first=updates_first,
            thread=threading.get_ident(),
        )

    def _check_stream(self, stream: Stream, current: Stream, plan: UpdatePlan) -> None:
        if current == stream:
            raise LaneError(
                f"running a step of key {plan.key!r}: the current stream is the update lane's "
                f"own, where the replay would wait for updates that are queued after it; replay on "
                f"another stream (streams come from a small pool and may coincide)",
            )
        self._checked_stream = current

    def _take_over(self, records: KeyRecords) -> ReplayState:
        state = ReplayState(self, records.key, is_guarded=records.is_guarded)
        former = records.owner
        if isinstance(former, ReplayState):
            lane = former.lane
            if isinstance(lane, UpdateLane) and lane._issuer is not None:  # noqa: SLF001
                raise LaneError(
                    f"running a step of key {records.key!r}: another update lane updates it, and "
                    f"two have no common order; share one lane for each device, or close the other",
                )
            # Marks of the closed lane mean nothing to this one, so what it has queued ends first.
            if former.replayed_on is not None:
                former.replayed_on.synchronize()
            state.unsettled = former.unsettled
        records.owner = state
        return state

    def _update_first(self, opened: _OpenStep) -> None:
        step, issuer = opened.step, opened.issuer
        state = step.state
        self._drain()
        self._raise_failures()
        # Until the step is settled, however it ends.
        state.unsettled, state.latest = True, None
        if state.replayed is not None:
            issuer.wait_for_replay(state.replayed)
        self._issue(step, issuer, release=False)
        opened.stream.wait_event(issuer.stream.record_event())

    def _issue(self, step: _Step, issuer: OperatorIssuer, *, release: bool) -> None:
        issuer.issue(step.bound, step.changes, release=release)
        self.counters.count_updates(step.bound, step.changes)

    def _complete(self, opened: _OpenStep) -> None:
        step, issuer, current = opened.step, opened.issuer, opened.stream
        state = step.state
        if state.awaits_replay:
            raise LaneError(
                f"running a step of key {state.key!r}: the replay did not replay the graph that "
                f"was captured under it, so nothing was updated; replay that graph on this device, "
                f"in the run mode and under the key of its capture"
            )
        state.replayed, state.replayed_on = issuer.mark_replay(current), current
        if opened.updates_first:
            self._settle(step)
        elif self._worker is None:
            self._issue(step, issuer, release=True)
            self._settle(step)
        else:
            # Before the thread can fail: what it fails at is unsettled again when that is raised.
            self._settle(step)
            self._worker.submit((state, self._update, opened))

    def _update(self, opened: _OpenStep) -> None:
        """Launch the updates of a step in the lane's thread."""
        issuer = opened.issuer
        try:
            if opened.previous is not None:
                issuer.wait_for_replay(opened.previous)
        except BaseException:
            issuer.release(opened.step.bound.plan.updates)
            raise
        self._issue(opened.step, issuer, release=True)

    def _release_alone(self, opened: _OpenStep) -> None:
        """Release the graph, in a separate thread: signal handlers run on the first."""
        try:
            bind_thread(self.device)
            self._give_up(opened)
        except BaseException as error:  # noqa: BLE001 - raised by `_await_release`
            opened.error = error
        finally:
            opened.is_done = True

    def _give_up(self, opened: _OpenStep) -> None:
        """Release the graph of a step that may or may not have been replayed: Note [failure]."""
        state, issuer, current = opened.step.state, opened.issuer, opened.stream
        state.is_open, is_replayed = False, not state.awaits_replay
        state.awaits_replay = False
        if opened.updates_first:
            self._fail(state)
            issuer.close_update()
            if is_replayed:
                state.replayed, state.replayed_on = issuer.mark_replay(current), current
            return
        if not is_replayed:
            # What the launches took was not issued.
            state.latest = None
            return
        previous = opened.previous if self._worker is not None else None
        self._fail(state)
        self._drain()
        # An interrupt may have left one open; where there is none, closing is refused.
        issuer.close_update()
        try:
            if previous is not None:
                issuer.wait_for_replay(previous)
        finally:
            issuer.release(opened.step.bound.plan.updates)
        state.replayed, state.replayed_on = issuer.mark_replay(current), current

    def _settle(self, step: _Step) -> None:
        # Only after a whole step: a failed one may have left any mixture.
        step.state.unsettled = False
        step.state.latest = (step.bound.plan, step.values)
        self.counters.steps += 1

    def _check(self, state: ReplayState, bound: BoundPlan, parameters: StepParameters) -> _Step:
        plan, latest = bound.plan, state.latest
        if latest is None:
            values = plan.check(parameters).values
            return _Step(state, bound, values, values)
        # A worker may be issuing the step before, and still read what the launches were given.
        if bound.launches is not None and self._worker is None:
            # Until they are issued the launches hold what the captured graph does not.
            state.latest = None
            changes = bound.launches.take(parameters)
            if changes is not None:
                return _Step(state, bound, None, changes)
            state.latest = latest
        values = plan.check(parameters).values
        if latest[1] is None:
            return _Step(state, bound, values, values)
        return _Step(state, bound, values, list(map(_changed_values, values, latest[1])))

    def _fail(self, state: ReplayState) -> None:
        state.unsettled = True
        state.latest = None
        self.counters.failures += 1

    def _drain(self) -> None:
        if self._worker is not None:
            self._worker.drain()

    def _raise_failures(self) -> None:
        if self._worker is None:
            return
        failures = self._worker.failures
        if not failures:
            return
        for failure in failures:
            self._fail(failure.state)
        # Only now: an interrupt lets them be raised again, and none be lost.
        self._worker.forget_failures(len(failures))
        error = failures[0].error
        if not isinstance(error, UpdateError):
            raise error
        keys = ", ".join(dict.fromkeys(repr(failure.state.key) for failure in failures))
        raise UpdateError(
            f"{error}. It failed in the lane's thread: throw all results of key {keys} away since "
            f"then",
            layer_name=error.layer_name,
            operator=error.operator,
        ) from error


def _changed_values(
    new: Mapping[str, object], old: Mapping[str, object]
) -> Mapping[str, object] | None:
    changed = {}
    for name, value in new.items():
        known = old[name]
        if type(value) is list:
            differs = value != known
        elif isinstance(value, torch.Tensor) and isinstance(known, torch.Tensor):
            # What a launch read from host memory is not what stands there now.
            differs = value is not known and (
                value.device.type == "cpu" or not is_same_memory(value, known)
            )
        else:
            differs = value is not known and (isinstance(value, torch.Tensor) or value != known)
        if differs:
            changed[name] = value
    return changed or None


def _own_replay(plan: UpdatePlan, replay: Callable[[], _Result] | None) -> Callable[[], _Result]:
    """Return the replay of the graph of a plan.

    Raises:
        LaneError: `replay` is known to belong to another graph, or no graph is known.
    """
    graph = plan.records.graph()
    if replay is None:
        if graph is None:
            raise LaneError(
                f"running a step of key {plan.key!r}: no replay was passed, and the recording "
                "has no graph that still lives; pass a replay, or `graph=` to "
                "Recorder.recording"
            )
        own: Callable[[], _Result] = graph.replay
        return own
    other = getattr(replay, "__self__", None)
    # A method of anything else may well replay the right graph in the end.
    if graph is not None and type(other) is type(graph) and other is not graph:
        raise LaneError(
            f"running a step of key {plan.key!r}: the replay is that of another graph, which would "
            "wait for ever for events that this plan does not set; give the plan of its own key"
        )
    return replay
