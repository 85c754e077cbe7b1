"""One episode of a soak: requests, the device's schedule, and faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from qwen3_engine import Request, SamplingParameters
from qwen3_engine.demonstration.workload import Arrival

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LENGTH = 384
MAX_SEQUENCES = 8
NUM_BLOCKS = 32
# Enough for two long sequences: others have to give their blocks back and wait again.
FEW_BLOCKS = 8

# A count that a step does not come to fails nothing. Launches that are refused are left out: they
# end torch_npu's task queue, and with it the process.
_FAULTS: Mapping[str, int] = {"task_update": 2, "run": 40, "allocation": 6}


class Captures(str, Enum):
    """When graphs are captured.

    Attributes:
        KEPT: reused from the previous episode.
        ANEW: released and captured again before the first step.
        BETWEEN_STEPS: released; one is captured before the first step, the others between steps.
    """

    KEPT = "kept"
    ANEW = "anew"
    BETWEEN_STEPS = "between steps"


@dataclass(frozen=True, kw_only=True)
class Episode:
    """An episode, derived from a seed.

    Attributes:
        seed: the seed.
        mode: the compile mode.
        arrivals: the requests.
        num_blocks: number of cache blocks that the engine may use.
        schedule: seed of the device's fuzzed schedule; ``None`` if its streams run freely.
        captures: when graphs are captured.
        capture_fault: the fault in the captures.
        faults: faults by the number of the attempted step.
        recaptures: whether graphs are captured again after a failed step.
    """

    seed: int
    mode: str
    arrivals: tuple[Arrival, ...]
    num_blocks: int
    schedule: int | None
    captures: Captures
    capture_fault: str
    faults: Mapping[int, str]
    recaptures: bool


def draw_episode(seed: int, *, modes: tuple[str, ...], vocab_size: int) -> Episode:
    """Return the episode of a seed; the seeds take turns through the modes.

    Args:
        seed: 0 or above.
        modes: compile modes.
        vocab_size: of the model.
    """
    random = Random(seed)
    is_crowded = random.random() < 0.25
    num_requests = random.randint(3, 12)
    arrivals = [
        Arrival(
            step=random.randint(0, 40),
            request=_request(random, number=number, vocab_size=vocab_size),
        )
        for number in range(num_requests)
    ]
    captures = random.choice(list(Captures))
    faults = {} if is_crowded else _draw_faults(random)
    return Episode(
        seed=seed,
        mode=modes[seed % len(modes)],
        arrivals=tuple(sorted(arrivals, key=lambda arrival: arrival.step)),
        num_blocks=FEW_BLOCKS if is_crowded else NUM_BLOCKS,
        schedule=seed if random.random() < 0.4 else None,
        captures=captures,
        capture_fault=f"capture_end:{random.randint(1, 8)}" if random.random() < 0.5 else "",
        faults=faults,
        recaptures=random.random() < 0.3,
    )


def _draw_faults(random: Random) -> dict[int, str]:
    """Return faults for about one step of ten.

    A crowded engine has none: a step that failed lets its scheduler admit a sequence that waits for
    blocks a step earlier than without the failure, and other batches round otherwise.
    """
    kinds = list(_FAULTS)
    return {
        step: f"{kind}:{random.randint(1, _FAULTS[kind])}"
        for step in range(200)
        if random.random() < 0.1 and (kind := random.choice(kinds))
    }


def _request(random: Random, *, number: int, vocab_size: int) -> Request:
    length = random.randint(*random.choice([(1, 12), (13, 130), (131, 300)]))
    return Request(
        prompt=tuple(random.randrange(vocab_size) for _ in range(length)),
        sampling=SamplingParameters(
            max_tokens=random.randint(1, 48),
            temperature=0.8 if random.random() < 0.25 else 0.0,
            seed=number,
        ),
    )
