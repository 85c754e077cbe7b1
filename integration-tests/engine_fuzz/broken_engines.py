"""Engines with one thing broken on purpose, one for each kind of event; the fuzzer finds them."""

from __future__ import annotations

import dataclasses
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

import cann_sim
from attn_update import UpdateError
from engine_fuzz.engines.callable_engine import CallableEngine
from engine_fuzz.engines.fuzzed_model import WIDTH, ModelFailure
from engine_fuzz.episode import Episode, Kind, draw_episode
from npu_graph_runtime import AddressCheck, GraphKey, RunMode
from npu_graph_runtime.errors import OutOfDeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attn_update import StepParameters
    from engine_fuzz.engines.sequences import Batch


class _StaleLengths(CallableEngine):
    """Gives attention the lengths of the step before."""

    _before: tuple[int, ...] = ()

    @override
    def parameters(self, batch: Batch, key: GraphKey) -> Any:
        before, self._before = self._before, batch.keys
        if len(before) == len(batch.keys):
            batch = dataclasses.replace(batch, keys=before)
        return super().parameters(batch, key)


class _Unwatched(CallableEngine):
    """Compares nothing with its captures."""

    @override
    def callable_options(self) -> dict[str, Any]:
        return {**super().callable_options(), "address_check": AddressCheck.NEVER}


class _WakesWithoutCapture(_Unwatched):
    """Keeps its graphs while it sleeps, and compares nothing."""

    _is_captured = False

    @override
    def capture(self) -> None:
        if not self._is_captured:
            super().capture()
            self._is_captured = True

    @override
    def release(self) -> None:
        pass


class _GivesUpCaptures(CallableEngine):
    """Captures nothing any more when it has been short of memory once."""

    _is_short = False

    @override
    def capture(self) -> None:
        if self._is_short:
            return
        try:
            super().capture()
        except OutOfDeviceMemoryError:
            self._is_short = True
            raise


class _HidesFailures(CallableEngine):
    """Answers with zeros where a model, a kernel or an update fails."""

    @override
    def run(self, batch: Batch, **options: Any) -> Tensor:
        try:
            hidden = super().run(batch, **options)
            self.device.synchronize()
        except (ModelFailure, UpdateError, RuntimeError):
            cann_sim.restart_devices()
            return torch.zeros(batch.num_rows, WIDTH, device=self.device.torch_device).half()
        return hidden


class _UpdatesLate(CallableEngine):
    """Does something else between a replay and its updates, and abandons no step."""

    @override
    def run(self, batch: Batch, **options: Any) -> Tensor:
        key = self.keys.get((batch.is_decode, batch.size))
        if key is None or not batch.is_decode:
            return super().run(batch, **options)
        inputs = self.load(batch)
        self.lane.begin(self.plans[key], self.parameters(batch, key))
        hidden = self.call(RunMode.FULL, key, inputs)
        time.sleep(0.003)
        self.lane.finish()
        return hidden[: batch.num_rows]


class _LeavesStreams(CallableEngine):
    """Makes another stream current again only where the captures were good."""

    @override
    def capture(self) -> None:
        entered = self.device.use_stream(self.device.create_stream())
        entered.__enter__()
        super().capture()
        entered.__exit__(None, None, None)


class _ReplaysByItself(CallableEngine):
    """Replays a device graph by the method of its class, which calls no guard."""

    @override
    def run(
        self,
        batch: Batch,
        *,
        key: GraphKey | None = None,
        parameters: StepParameters | None = None,
        plan_of: GraphKey | None = None,
    ) -> Tensor:
        if plan_of is None or parameters is None:
            return super().run(batch)
        own = self.keys[True, batch.size]
        (graph,) = (graphed.graph_of(own) for graphed in self.callables if graphed.is_captured(own))
        self.lane.run(self.plans[plan_of], parameters, lambda: type(graph).replay(graph))
        return self.inputs[0]


class _KnowsKeysByIdentity(CallableEngine):
    """Does not find the graph of an equal key of another process."""

    @override
    def run(self, batch: Batch, *, key: GraphKey | None = None, **options: Any) -> Tensor:
        own = {id(each): each for each in self.keys.values()}
        return super().run(batch, key=None if key is None else own[id(key)], **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokenPart:
    """A part that is broken on purpose, and how the fuzzer can find it.

    Attributes:
        engine: the engine with the broken part.
        kinds: kinds of events that reveal it.
        sorts: sorts of failures that the fuzzer may find.
        shape: the engine shape needed to reveal it.
    """

    engine: type[CallableEngine]
    kinds: tuple[Kind, ...]
    sorts: frozenset[str]
    shape: Mapping[str, Any]

    def draw(self, seed: int) -> Episode:
        """Return an episode of the kinds and the shape."""
        fixed = {
            "uses_runners": False,
            "quirk": "",
            "address_check": "always",
            "worker": False,
            **self.shape,
        }
        num_engines = 2 if Kind.OTHER_DEVICE in self.kinds else 1
        kinds = (Kind.DECODE, *self.kinds, *self.kinds)
        return draw_episode(seed, kinds=kinds, fixed=fixed, num_engines=num_engines)


_FULL = MappingProxyType({"mode": "full"})
_PIECEWISE = MappingProxyType({"mode": "piecewise"})
_WRONG = frozenset({"wrong"})

BROKEN: Mapping[str, BrokenPart] = MappingProxyType(
    {
        "lengths of the step before": BrokenPart(
            engine=_StaleLengths,
            kinds=(Kind.JOIN, Kind.LEAVE, Kind.DECODE),
            sorts=_WRONG,
            shape=_FULL,
        ),
        "sleep without capture": BrokenPart(
            engine=_WakesWithoutCapture,
            kinds=(Kind.SLEEP,),
            sorts=_WRONG | {"overwritten"},
            shape=_PIECEWISE,
        ),
        "unwatched sleep": BrokenPart(
            engine=_Unwatched,
            kinds=(Kind.SLEEP_WITH_GRAPHS,),
            sorts=_WRONG | {"overwritten"},
            shape=_PIECEWISE,
        ),
        "unwatched caches": BrokenPart(
            engine=_Unwatched,
            kinds=(Kind.REPLACE_CACHES,),
            sorts=_WRONG | {"overwritten"},
            shape=_PIECEWISE,
        ),
        "unwatched weights": BrokenPart(
            engine=_Unwatched, kinds=(Kind.MOVE_WEIGHT,), sorts=_WRONG, shape=_PIECEWISE
        ),
        "unwatched attributes": BrokenPart(
            engine=_Unwatched, kinds=(Kind.REBIND,), sorts=_WRONG, shape=_PIECEWISE
        ),
        "uncompared arguments": BrokenPart(
            engine=_Unwatched, kinds=(Kind.CHANGE_ARGUMENT,), sorts=_WRONG, shape=_PIECEWISE
        ),
        "uncompared inputs": BrokenPart(
            engine=_Unwatched, kinds=(Kind.MOVE_INPUT,), sorts=_WRONG, shape=_PIECEWISE
        ),
        "no capture after one that failed": BrokenPart(
            engine=_GivesUpCaptures,
            kinds=(Kind.RUN_OUT_OF_MEMORY,),
            sorts=frozenset({"refused", "crash"}),
            shape=_FULL,
        ),
        "hidden exceptions": BrokenPart(
            engine=_HidesFailures,
            kinds=(Kind.RAISE_IN_MODEL,),
            sorts=_WRONG,
            shape=_PIECEWISE,
        ),
        "hidden failures of updates": BrokenPart(
            engine=_HidesFailures, kinds=(Kind.FAIL_UPDATE,), sorts=_WRONG, shape=_FULL
        ),
        "hidden failures of kernels": BrokenPart(
            engine=_HidesFailures, kinds=(Kind.FAIL_KERNEL,), sorts=_WRONG, shape=_FULL
        ),
        "updates long after replays": BrokenPart(
            engine=_UpdatesLate,
            kinds=(Kind.SIGNAL_IN_STEP,),
            # A signal that comes before `finish` may also leave the step open for the next one.
            sorts=frozenset({"hang", "refused"}),
            shape=_FULL,
        ),
        "streams left current": BrokenPart(
            engine=_LeavesStreams,
            kinds=(Kind.SIGNAL_IN_CAPTURE,),
            sorts=frozenset({"left"}),
            shape=_FULL,
        ),
        "replays that nobody sees": BrokenPart(
            engine=_ReplaysByItself,
            kinds=(Kind.WRONG_PLAN,),
            sorts=frozenset({"hang"}),
            shape=_FULL,
        ),
        "uncompared devices": BrokenPart(
            engine=_Unwatched, kinds=(Kind.OTHER_DEVICE,), sorts=_WRONG, shape=_FULL
        ),
        "keys by identity": BrokenPart(
            engine=_KnowsKeysByIdentity,
            kinds=(Kind.OTHER_PROCESS,),
            sorts=frozenset({"crash"}),
            shape=_FULL,
        ),
    }
)
