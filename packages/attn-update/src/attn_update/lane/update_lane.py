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
key is marked unsettled, and its next step updates first and lets C wait for U: then the events are
not needed for the order, and the replay leaves all of them unset, as 3 demands from then on.

Note [direct launch]. On a device with a launch queue U may be a stream without it, see
`attn_update.task_device`. What is put on U then reaches the device at once, what is put on C
later. Only one wait crosses in that direction, that of U for d(i - 1), so the queue is flushed
before it. With an updater it is flushed behind R(i) instead, where replays have mostly done so, and
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
While a step is open no other is begun: its updates would queue on U in front of those that R(i)
waits for. A step that is begun while the thread's former one is open says that the former was given
up: its graph is released. `begin(..., replayed=True)` stands behind the engine's replay. Then R(i)
is waiting whatever is wrong with the step, so all that `begin` refuses releases the graph first.
And no later step of the key may have to update first, because its replay is queued when it is
begun: so a failed one unsets its external events itself, behind d(i) and in front of all later work
of C.

In `UpdateOrder.UPDATE_FIRST` U waits for d(i - 1), all updates run, C waits for U, then R(i) runs:
1 and 2 hold as before, 3 and 4 by stream order.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from attn_update.errors import LaneError, UpdateError
from attn_update.issuing.issuer_choice import choose_issuer
from attn_update.lane.event_unset import unset_events
from attn_update.lane.lane_counters import LaneCounters
from attn_update.lane.update_order import UpdateOrder
from attn_update.lane.update_worker import UpdateWorker
from attn_update.recording.tensor_memory import is_same_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from attn_update.issuing.issuer_choice import UpdaterChoice
    from attn_update.issuing.operator_issuer import OperatorIssuer
    from attn_update.issuing.updater import Changes, Updater
    from attn_update.planning.step_parameters import StepParameters
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.recording.record import KeyRecords
    from attn_update.task_device import Stream, TaskDevice

_Result = TypeVar("_Result")

_SECONDS_BETWEEN_RELEASES = 0.001


class _Step(NamedTuple):
    """A step whose parameters are right: its values, if known here, and those that changed."""

    plan: UpdatePlan
    values: tuple[Mapping[str, object], ...] | None
    changes: Changes


class _OpenStep(NamedTuple):
    """A step of which the replay is queued, or is about to be."""

    step: _Step
    issuer: OperatorIssuer
    stream: Stream
    previous: Any
    updates_first: bool
    replayed: bool
    thread: int


class UpdateLane:
    """Updates and replays captured graphs of one device, in order and without a host wait.

    Make one for each device and share it between models: steps of several threads queue, one after
    the other, for as long as the host needs to issue them. The caller owns it and closes it.

    Args:
        device: The device of the graphs.
        order: What a step does first, unless `run` is told otherwise.
        skip_unchanged: Whether launches keep their arguments when the step parameters are those
            of the latest step of the key. Their external events are recorded all the same.
        direct: Whether to launch updates past the device's launch queue where it allows that.
        updater: How updates are issued, which is their cost and nothing else: see
            `attn_update.issuing.issuer_choice.UpdaterChoice`. A native updater is built by the
            first lane of the machine that uses it.
        worker: Whether a thread of the lane issues the updates, so that `run` returns as soon as
            the replay is queued; see Note [worker].

    Attributes:
        counters: What the lane has done.
        updater: What updates are issued by: ``native``, ``kernels`` or ``operators``. A plan that
            it cannot bind is issued by operators: `UpdatePlan.unbound_reason`.
        updater_reason: Why by that.

    Raises:
        LaneError: The device does not offer the updater that was chosen.
        NativeUnavailableError: The native updater was chosen and cannot be built here.
    """

    def __init__(
        self,
        device: TaskDevice,
        *,
        order: UpdateOrder = UpdateOrder.REPLAY_FIRST,
        skip_unchanged: bool = True,
        direct: bool = True,
        updater: UpdaterChoice | Updater = "auto",
        worker: bool = False,
    ) -> None:
        self.device = device
        self.counters = LaneCounters()
        self._order = order
        self._skip_unchanged = skip_unchanged
        self._issuer: OperatorIssuer | None
        self._issuer, self.updater, self.updater_reason = choose_issuer(
            device, self.counters, direct=direct, updater=updater
        )
        self._worker = UpdateWorker(device) if worker else None
        self._lock = threading.Lock()
        self._checked_stream: Stream | None = None
        self._owner: int | None = None
        self._open: _OpenStep | None = None

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], _Result] | None = None,
        *,
        order: UpdateOrder | None = None,
    ) -> _Result:
        """Run one step: check, replay and update. Returns as soon as all is queued.

        Args:
            plan: Of the graph that `replay` replays.
            parameters: Of this step.
            replay: Queues the replay on the current stream, and nothing that waits for it. Default:
                that of the graph which `Recorder.recording` was given.
            order: What to do first; default as the lane was made.

        Returns:
            What `replay` returns.

        Raises:
            AttnUpdateError: From `UpdatePlan.check`; nothing was launched.
            LaneError: The lane is closed, this call is inside a `replay`, the current stream is
                the lane's own, another lane updates this key, or `replay` is of another graph than
                the one recorded under the key; nothing was launched.
            UpdateError: An update failed; see Note [failure].
        """
        replay = _own_replay(plan, replay)
        with self._entered() as issuer:
            self._check_none_open()
            opened = self._prepare(plan, parameters, issuer, order or self._order)
            try:
                result = replay()
            except BaseException:
                self._give_up(opened)
                raise
            self._complete(opened)
            return result

    def begin(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        *,
        replayed: bool = False,
        order: UpdateOrder | None = None,
    ) -> None:
        """Begin a step whose graph the caller replays, on the stream that is current now.

        Behind the replay the caller calls `finish`, or `abandon` where the replay failed; until
        then the graph waits on the device, and the host must not wait for it. See Note [two
        phases].

        Args:
            plan: Of the graph that is replayed.
            parameters: Of this step.
            replayed: Whether the replay is queued already, on this stream. It must then be in
                order with the replays before; a step that is refused releases the graph, and its
                results are void.
            order: What to do first; default as the lane was made. Only replay first where
                `replayed`.

        Raises:
            AttnUpdateError: From `UpdatePlan.check`; nothing was launched.
            LaneError: As for `run`; or a step was begun and not finished. If this thread began it,
                its graph is released, its results are void, and the next step works.
            UpdateError: With `UpdateOrder.UPDATE_FIRST` an update failed.
        """
        with self._entered() as issuer:
            if not replayed:
                self._check_none_open()
                self._open = self._prepare(plan, parameters, issuer, order or self._order)
                return
            current = self.device.current_stream()
            opened = self._open
            if opened is not None and opened.thread == threading.get_ident():
                self._open = None
                self._release_both(opened, plan, current)
                raise _never_finished(opened)
            try:
                self._check_none_open()
                self._check_behind(plan, order or self._order)
                opened = self._prepare(plan, parameters, issuer, UpdateOrder.REPLAY_FIRST)
            except BaseException:
                self._release_behind(plan, issuer, current)
                raise
            self._open = opened._replace(replayed=True)

    def finish(self) -> None:
        """Issue the updates of the step that was begun; returns as soon as all is queued.

        Raises:
            LaneError: No step was begun, or the lane is closed.
            UpdateError: An update failed; see Note [failure].
        """
        with self._entered():
            self._complete(self._take_open("finishing"))

    def abandon(self) -> None:
        """Give up the step that was begun, whether its graph was replayed or not; never a hang.

        If it was, the graph is released and its results are void. The next step works.

        Raises:
            LaneError: No step was begun, or the lane is closed.
        """
        with self._entered():
            self._give_up(self._take_open("abandoning"))

    def drain(self) -> None:
        """Wait until the lane's thread has issued all updates; the device may still be busy.

        Raises:
            UpdateError: One of them failed; see Note [worker].
        """
        with self._lock:
            self._drain()
            self._raise_failures()

    def close(self) -> None:
        """Give the stream up. Replays already queued finish; later steps are refused.

        Raises:
            UpdateError: An update in the lane's thread failed; the lane is closed all the same.
        """
        with self._lock:
            self._issuer = None
            try:
                if self._open is not None:
                    self._give_up(self._take_open("closing"))
            finally:
                if self._worker is not None:
                    self._worker.close()
                    self._raise_failures()

    @contextmanager
    def _entered(self) -> Iterator[OperatorIssuer]:
        me = threading.get_ident()
        if self._owner == me:
            raise LaneError(
                "running a step: this thread is inside a step of the same lane; a replay must not "
                "run another step",
            )
        with self._lock:
            if self._issuer is None:
                raise LaneError("running a step: the update lane is closed; make a new one")
            self._owner = me
            try:
                yield self._issuer
            finally:
                self._owner = None

    def _check_none_open(self) -> None:
        opened = self._open
        if opened is None:
            return
        key = opened.step.plan.key
        if opened.thread != threading.get_ident():
            raise LaneError(
                f"running a step: another thread has begun a step of key {key!r} and not finished "
                f"it; finish it first, or give each thread a lane and keys of its own",
            )
        self._open = None
        self._give_up(opened)
        raise _never_finished(opened)

    def _take_open(self, what: str) -> _OpenStep:
        opened, self._open = self._open, None
        if opened is None:
            raise LaneError(f"{what} a step: none was begun, or it was given up; call begin first")
        return opened

    def _check_behind(self, plan: UpdatePlan, order: UpdateOrder) -> None:
        what = f"beginning a step of key {plan.key!r} behind its replay"
        if order is UpdateOrder.UPDATE_FIRST:
            raise LaneError(
                f"{what}: the lane updates first; begin the step before the replay. The graph was "
                f"released, throw the results of this step away",
            )
        if plan.records.unsettled:
            raise LaneError(
                f"{what}: a step before it failed and may have left its events set, so this replay "
                f"may not have waited. The graph was released; throw the results of this step "
                f"away, and begin the next one before its replay if this is raised again",
            )

    def _prepare(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        issuer: OperatorIssuer,
        order: UpdateOrder,
    ) -> _OpenStep:
        if self._worker is not None:
            self._raise_failures()
        plan.check_key(parameters)
        current = self.device.current_stream()
        records = plan.records
        if current is not self._checked_stream or records.lane is not self:
            self._check_streams(issuer.stream, current, records)
        if plan.bound_by is not issuer:
            issuer.bind(plan)
        step = self._check(plan, parameters)
        last = records.replayed_on
        if records.replayed is not None and last is not current and last != current:
            # Replays of one graph have no order but that of their streams.
            issuer.order_behind(records.replayed, current)
        updates_first = records.unsettled or order is UpdateOrder.UPDATE_FIRST
        previous = records.replayed
        if updates_first:
            self._update_first(step, issuer, current)
        elif self._worker is None and previous is not None:
            issuer.wait_for_replay(previous)
        return _OpenStep(
            step, issuer, current, previous, updates_first, False, threading.get_ident()
        )

    def _check_streams(self, stream: Stream, current: Stream, records: KeyRecords) -> None:
        if current == stream:
            raise LaneError(
                f"running a step of key {records.key!r}: the current stream is the update lane's "
                f"own, where the replay would wait for updates queued behind it; replay on "
                f"another stream (streams come from a small pool and may coincide)",
            )
        if records.lane is None:
            records.lane = self
        elif records.lane is not self:
            raise LaneError(
                f"running a step of key {records.key!r}: another update lane updates it, and two "
                f"have no common order; share one lane for each device",
            )
        self._checked_stream = current

    def _update_first(self, step: _Step, issuer: OperatorIssuer, current: Stream) -> None:
        records = step.plan.records
        self._drain()
        self._raise_failures()
        if records.replayed is not None:
            issuer.wait_for_replay(records.replayed)
        try:
            issuer.issue(step.plan, step.changes, release=False)
            current.wait_event(issuer.stream.record_event())
        except BaseException:
            self._fail(records)
            raise

    def _complete(self, opened: _OpenStep) -> None:
        step, issuer, current = opened.step, opened.issuer, opened.stream
        plan, previous = step.plan, opened.previous
        records = plan.records
        try:
            records.replayed, records.replayed_on = issuer.mark_replay(current), current
        except BaseException:
            self._give_up(opened)
            raise
        if opened.updates_first:
            self._settle(step)
            return
        if self._worker is None:
            try:
                issuer.issue(plan, step.changes, release=True)
            except BaseException:
                self._fail(records)
                if opened.replayed:
                    self._unset(plan, issuer, current)
                raise
            self._settle(step)
            return

        def update() -> None:
            try:
                if previous is not None:
                    issuer.wait_for_replay(previous)
            except BaseException:
                issuer.release(plan.updates)
                raise
            issuer.issue(plan, step.changes, release=True)

        # Before the thread can fail: what it fails at is unsettled again when that is raised.
        self._settle(step)
        self._worker.submit(records, update)

    def _give_up(self, opened: _OpenStep) -> None:
        """Release the graph of a step that may have been replayed or not: Note [failure]."""
        plan, issuer, current = opened.step.plan, opened.issuer, opened.stream
        if opened.updates_first:
            self._fail(plan.records)
            plan.records.replayed, plan.records.replayed_on = issuer.mark_replay(current), current
            return
        waits = opened.previous if self._worker is not None else None
        self._release_replay(plan, issuer, current, waits)
        if opened.replayed:
            self._unset(plan, issuer, current)

    def _release_replay(
        self, plan: UpdatePlan, issuer: OperatorIssuer, current: Stream, previous: Any
    ) -> None:
        records = plan.records
        self._fail(records)
        self._drain()
        try:
            if previous is not None:
                issuer.wait_for_replay(previous)
        finally:
            issuer.release(plan.updates)
        records.replayed, records.replayed_on = issuer.mark_replay(current), current

    def _release_behind(self, plan: UpdatePlan, issuer: OperatorIssuer, current: Stream) -> None:
        if current == issuer.stream:
            # Behind the replay on the lane's own stream nothing of the lane would run.
            other = self.device.create_stream()
            self._fail(plan.records)
            for update in plan.updates:
                update.event.record(other)
            return
        self._release_replay(plan, issuer, current, plan.records.replayed)
        self._unset(plan, issuer, current)

    def _release_both(self, opened: _OpenStep, plan: UpdatePlan, current: Stream) -> None:
        """Release two replays that wait, with no mark between them."""
        plans = {id(each): each for each in (opened.step.plan, plan)}.values()
        issuer = opened.issuer
        self._drain()
        # A record that comes before the first replay took the last one is lost, so one round may
        # serve only one of the two. The host waits, which it does nowhere else.
        while not current.query():
            for each in plans:
                issuer.release(each.updates)
            time.sleep(_SECONDS_BETWEEN_RELEASES)
        for each in plans:
            self._fail(each.records)
            each.records.replayed, each.records.replayed_on = issuer.mark_replay(current), current
            self._unset(each, issuer, current)

    def _unset(self, plan: UpdatePlan, issuer: OperatorIssuer, current: Stream) -> None:
        """Unset the events of a key whose replay was released, so that it is settled."""
        issuer.wait_for_replay(plan.records.replayed)
        unset_events(self.device, issuer.stream, plan.updates)
        current.wait_event(issuer.stream.record_event())
        plan.records.unsettled = False

    def _settle(self, step: _Step) -> None:
        # Only after a whole step: a failed one may have left any mixture behind.
        records = step.plan.records
        records.unsettled = False
        records.latest = (step.plan, step.values)
        self.counters.steps += 1

    def _check(self, plan: UpdatePlan, parameters: StepParameters) -> _Step:
        records = plan.records
        latest = records.latest
        if not self._skip_unchanged or latest is None or latest[0] is not plan:
            values = plan.check(parameters).values
            return _Step(plan, values, values)
        # A worker may be issuing the step before, and still read what the launches were given.
        if plan.launches is not None and self._worker is None:
            # Until they are issued the launches hold what the captured graph does not.
            records.latest = None
            changes = plan.launches.take(parameters)
            if changes is not None:
                return _Step(plan, None, changes)
            records.latest = latest
        values = plan.check(parameters).values
        if latest[1] is None:
            return _Step(plan, values, values)
        return _Step(plan, values, list(map(_changed_values, values, latest[1])))

    def _fail(self, records: KeyRecords) -> None:
        records.unsettled = True
        records.latest = None
        self.counters.failures += 1

    def _drain(self) -> None:
        if self._worker is not None:
            self._worker.drain()

    def _raise_failures(self) -> None:
        failures = [] if self._worker is None else self._worker.take_failures()
        for failure in failures:
            self._fail(failure.records)
        if not failures:
            return
        error = failures[0].error
        if not isinstance(error, UpdateError):
            raise error
        keys = ", ".join(dict.fromkeys(repr(failure.records.key) for failure in failures))
        raise UpdateError(
            f"{error}. It failed in the lane's thread: throw all results of key {keys} away since "
            f"then",
            layer_name=error.layer_name,
            operator=error.operator,
        ) from error


def _never_finished(opened: _OpenStep) -> LaneError:
    return LaneError(
        f"running a step: the step of key {opened.step.plan.key!r} before it was begun and never "
        f"finished. Its graph was released; throw its results away, and those of this step, which "
        f"was not run. Call finish or abandon behind each begin",
    )


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
    """Return what replays the graph of a plan.

    Raises:
        LaneError: It is known that `replay` is of another graph, or no graph is known.
    """
    graph = plan.records.graph()
    if replay is None:
        if graph is None:
            raise LaneError(
                f"running a step of key {plan.key!r}: there is no replay, and the recording was "
                "told of no graph that still lives; give a replay, or `graph=` to "
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
