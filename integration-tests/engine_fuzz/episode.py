"""One episode: an engine and the events in its life, derived from a seed."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MODES = ("full", "piecewise", "breakable", "full_decode_and_piecewise")
RECORDING_MODES = frozenset({"full", "full_decode_and_piecewise"})
UPDATERS = ("operators", "kernels", "native")
WEIGHTS = ("embed", "query.0", "key_value.1", "output.1")
PLACES = ("buffer", "attribute", "list", "object")
QUIRKS = (
    "rebinds a buffer",
    "rebinds an attribute",
    "keeps a workspace",
    "keeps a workspace in a closure",
    "attention without a record",
)


class Kind(str, Enum):
    """Kind of event."""

    JOIN = "join"
    LEAVE = "leave"
    DECODE = "decode"
    SLEEP = "sleep"
    SLEEP_WITH_GRAPHS = "sleep with graphs"
    REPLACE_CACHES = "replace caches"
    MOVE_WEIGHT = "move weight"
    REBIND = "rebind attribute"
    CHANGE_ARGUMENT = "change argument"
    MOVE_INPUT = "move input"
    CAPTURE_AGAIN = "capture again"
    RUN_OUT_OF_MEMORY = "run out of memory"
    RAISE_IN_MODEL = "raise in model"
    SIGNAL_IN_STEP = "signal in step"
    SIGNAL_IN_CAPTURE = "signal in capture"
    FAIL_UPDATE = "fail update"
    FAIL_KERNEL = "fail kernel"
    WRONG_PLAN = "wrong plan"
    OTHER_DEVICE = "other device"
    OTHER_PROCESS = "other process"


# How often each kind is drawn. A step follows each of them but join, leave and decode.
_OFTEN: Mapping[Kind, int] = {
    Kind.JOIN: 12,
    Kind.LEAVE: 5,
    Kind.DECODE: 30,
    Kind.SLEEP: 2,
    Kind.SLEEP_WITH_GRAPHS: 3,
    Kind.REPLACE_CACHES: 3,
    Kind.MOVE_WEIGHT: 5,
    Kind.REBIND: 5,
    Kind.CHANGE_ARGUMENT: 4,
    Kind.MOVE_INPUT: 2,
    Kind.CAPTURE_AGAIN: 1,
    Kind.RUN_OUT_OF_MEMORY: 3,
    Kind.RAISE_IN_MODEL: 3,
    Kind.SIGNAL_IN_STEP: 8,
    Kind.SIGNAL_IN_CAPTURE: 3,
    Kind.FAIL_UPDATE: 3,
    Kind.FAIL_KERNEL: 2,
    Kind.WRONG_PLAN: 3,
    Kind.OTHER_DEVICE: 3,
    Kind.OTHER_PROCESS: 4,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One event; any subset of the events of an episode is an episode too.

    Attributes:
        kind: the kind of event.
        engine: the affected engine, 0 or 1; used modulo the number of engines.
        options: plain values that depend on the kind.
    """

    kind: Kind
    engine: int
    options: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the event on one line."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.kind.value} of engine {self.engine}: {options or 'no options'}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How an engine is built.

    Attributes:
        mode: the compile mode.
        uses_runners: whether the runners of npu-compile run it, or its own graphed callables.
        updater: updater of the lane.
        worker: whether the lane has a thread.
        weak_outputs: whether graphs keep only weak references to their outputs.
        address_check: when inputs are compared.
        warmup_runs: number of runs before each capture.
        wrapped: the form of the captured callable.
        caches_as_arguments: whether caches are passed to attention, or it reads them by itself.
        quirk: a habit of the model that a capture may reject; empty for none.
        interrupt: the exception of signal handlers.
    """

    mode: str
    uses_runners: bool
    updater: str
    worker: bool
    weak_outputs: bool
    address_check: str
    warmup_runs: int
    wrapped: str
    caches_as_arguments: bool
    quirk: str
    interrupt: str

    @property
    def records(self) -> bool:
        """Whether decode steps are captured whole, with attention recorded."""
        return self.mode in RECORDING_MODES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """All that a seed decides.

    Attributes:
        seed: of weights and tokens too.
        shape: of every engine.
        num_engines: 2 for one on each of two devices.
        events: in their order.
    """

    seed: int
    shape: Shape
    num_engines: int
    events: tuple[Event, ...]

    def with_events(self, events: Sequence[Event]) -> Episode:
        """Return the episode with other events."""
        return dataclasses.replace(self, events=tuple(events))

    def to_json(self) -> str:
        """Return the episode on one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Episode:
        """Read an episode written by `to_json`."""
        values = json.loads(text)
        events = [
            Event(kind=Kind(each["kind"]), engine=each["engine"], options=each["options"])
            for each in values["events"]
        ]
        shape = Shape(**values["shape"])
        return cls(
            seed=values["seed"],
            shape=shape,
            num_engines=values["num_engines"],
            events=tuple(events),
        )

    def __str__(self) -> str:
        """Return shape and events, a line each."""
        lines = [f"seed {self.seed}, {self.num_engines} engine(s), {self.shape}"]
        return "\n".join([*lines, *(f"  {event}" for event in self.events)])


def draw_episode(
    seed: int,
    *,
    kinds: Sequence[Kind] = tuple(Kind),
    fixed: Mapping[str, Any] = MappingProxyType({}),
    num_engines: int | None = None,
) -> Episode:
    """Return the episode of a seed.

    Args:
        seed: 0 or above.
        kinds: of the events after the first join.
        fixed: parts of the shape that are not drawn.
        num_engines: drawn too where it is ``None``.
    """
    random = Random(seed)
    shape = dataclasses.replace(_draw_shape(random, seed), **fixed)
    has_two = random.random() < 0.2
    if num_engines is None:
        num_engines = 1 + has_two
    possible = [kind for kind in kinds if _is_possible(kind, shape, num_engines)]
    weights = [_OFTEN[kind] for kind in possible]
    drawn = random.choices(possible, weights, k=random.randint(6, 14))
    first = [_draw_event(random, Kind.JOIN, engine) for engine in range(num_engines)]
    events = [_draw_event(random, kind, random.randrange(num_engines)) for kind in drawn]
    return Episode(seed=seed, shape=shape, num_engines=num_engines, events=(*first, *events))


def _draw_shape(random: Random, seed: int) -> Shape:
    mode = MODES[seed % len(MODES)]
    # The other modes of the runners need a compiler, which takes seconds.
    uses_runners = mode in {"full", "breakable"} and random.random() < 0.3
    quirks = [each for each in QUIRKS if mode in RECORDING_MODES or "attention" not in each]
    return Shape(
        mode=mode,
        uses_runners=uses_runners,
        updater=random.choice(UPDATERS),
        worker=random.random() < 0.3,
        weak_outputs=random.random() < 0.8,
        address_check="first_replay" if random.random() < 0.25 else "always",
        warmup_runs=1 if uses_runners else random.choice((0, 1, 1, 2)),
        wrapped=random.choice(("module", "module", "method", "lambda", "partial")),
        caches_as_arguments=random.random() < 0.5,
        quirk=random.choice(quirks) if random.random() < 0.2 else "",
        interrupt=random.choice(("KeyboardInterrupt", "Interruption")),
    )


def _is_possible(kind: Kind, shape: Shape, num_engines: int) -> bool:
    if kind in {Kind.CHANGE_ARGUMENT, Kind.MOVE_INPUT}:
        # Runners own their inputs. Compared at the first replay alone, others are the caller's.
        return not shape.uses_runners and shape.address_check == "always"
    if kind is Kind.OTHER_PROCESS:
        return not shape.uses_runners
    if kind is Kind.WRONG_PLAN:
        return shape.records and not shape.uses_runners
    if kind is Kind.FAIL_UPDATE:
        return shape.records
    if kind is Kind.OTHER_DEVICE:
        return num_engines > 1 and not shape.uses_runners
    return True


def _draw_event(random: Random, kind: Kind, engine: int) -> Event:
    return Event(kind=kind, engine=engine, options=_draw_options(random, kind))


def _draw_options(random: Random, kind: Kind) -> dict[str, Any]:
    options: dict[str, Any] = {"draw": random.randrange(1 << 30)}
    if kind is Kind.JOIN:
        return {**options, "length": random.randint(1, 7)}
    if kind is Kind.LEAVE:
        return options
    options["steps"] = random.choice((1, 1, 1, 2, 4))
    draw = _OPTIONS.get(kind)
    return options if draw is None else {**options, **draw(random)}


def _keeps_old(random: Random) -> dict[str, Any]:
    return {"keeps_old": random.random() < 0.3}


# Most steps take some milliseconds, captures some tens.
_OPTIONS: Mapping[Kind, Callable[[Random], dict[str, Any]]] = MappingProxyType(
    {
        Kind.SLEEP: lambda random: {"weights": random.choice(("stay", "resized", "replaced"))},
        Kind.SLEEP_WITH_GRAPHS: lambda random: {
            "weights": random.choice(("stay", "resized")),
            "caches": random.random() < 0.7,
        },
        Kind.REPLACE_CACHES: _keeps_old,
        Kind.MOVE_WEIGHT: lambda random: {
            "weight": random.choice(WEIGHTS),
            "how": random.choice(("parameter", "data", "resized", "written", "loaded")),
            **_keeps_old(random),
        },
        Kind.REBIND: lambda random: {"place": random.choice(PLACES), **_keeps_old(random)},
        Kind.CHANGE_ARGUMENT: lambda random: {
            "form": random.randrange(100),
            "value": random.randint(1, 9),
        },
        Kind.RUN_OUT_OF_MEMORY: lambda random: {"allocation": random.randint(1, 4)},
        Kind.RAISE_IN_MODEL: lambda random: {
            "where": random.choice(("capture", "step")),
            "call": random.randint(1, 3),
        },
        Kind.SIGNAL_IN_STEP: lambda random: {
            "seconds": random.choice((0.0005, 0.002, 0.006)) * random.random() + 1e-6
        },
        Kind.SIGNAL_IN_CAPTURE: lambda random: {
            "seconds": random.choice((0.01, 0.06)) * random.random() + 1e-6
        },
        Kind.FAIL_UPDATE: lambda random: {"update": random.randint(1, 2)},
        Kind.FAIL_KERNEL: lambda random: {"kernel": random.randint(1, 30)},
        Kind.OTHER_DEVICE: lambda random: {"what": random.choice(("input", "session", "current"))},
        Kind.OTHER_PROCESS: lambda random: {"what": random.choice(("key", "parameters", "both"))},
    }
)
