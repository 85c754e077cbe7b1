"""A workload: requests of very different lengths that join and leave at fixed steps."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.sequence import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qwen3_engine.serving.engine import Engine
    from qwen3_engine.serving.sequence import RequestOutput


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One request of a workload.

    Attributes:
        step: the engine step before which it arrives.
        request: the request.
    """

    step: int
    request: Request


def mixed_arrivals(
    prompt_lengths: Sequence[int],
    *,
    vocab_size: int,
    output_tokens: Sequence[int],
    steps_between: int,
    sampled_every: int = 0,
    seed: int = 0,
) -> tuple[Arrival, ...]:
    """Return one arrival for each prompt length, with random tokens, the same for the same seed.

    Args:
        prompt_lengths: tokens of each prompt.
        vocab_size: of the model.
        output_tokens: tokens to generate, repeated over the prompts.
        steps_between: engine steps from one arrival to the next.
        sampled_every: each so-manieth request is sampled, with its number as seed; 0 samples none.
        seed: of the prompts.
    """
    generator = random.Random(seed)
    arrivals = []
    for number, length in enumerate(prompt_lengths):
        prompt = tuple(generator.randrange(vocab_size) for _ in range(length))
        is_sampled = sampled_every > 0 and number % sampled_every == sampled_every - 1
        sampling = SamplingParameters(
            max_tokens=output_tokens[number % len(output_tokens)],
            temperature=0.8 if is_sampled else 0.0,
            seed=number,
        )
        request = Request(prompt=prompt, sampling=sampling)
        arrivals.append(Arrival(step=number * steps_between, request=request))
    return tuple(arrivals)


def run_workload(engine: Engine, arrivals: Sequence[Arrival]) -> list[RequestOutput]:
    """Run an idle engine until all requests of a workload are over; return outputs by arrival.

    An engine without work skips ahead to the next arrival.
    """
    waiting = sorted(arrivals, key=lambda arrival: arrival.step)
    outputs: dict[int, RequestOutput] = {}
    ids: list[int] = []
    step = 0
    while waiting or engine.has_work:
        if waiting and not engine.has_work:
            step = max(step, waiting[0].step)
        while waiting and waiting[0].step <= step:
            ids.append(engine.add_request(waiting.pop(0).request))
        outputs.update((output.request_id, output) for output in engine.step())
        step += 1
    return [outputs[request_id] for request_id in ids]
