"""What an attention kind declares of the operator that makes its metadata on the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MetadataOperator:
    """An operator whose results an attention operator takes, such as how work is split over cores.

    Attributes:
        argument: The argument of attention that takes the result, or the first of several.
        operator: The operator, with its overload if that is not the default one.
        bounds: Its integer arguments that a step may not exceed, such as the largest length. A
            captured graph keeps what they were at the capture.
        stage: When it runs: see `attn_update.producers.Producer`.
        further: The arguments that take its further results, in their order. None for a result that
            another operator reads, which calls `attn_update.producers.ProducerLane.wait_for`.
    """

    argument: str
    operator: str
    bounds: frozenset[str]
    stage: int = 0
    further: tuple[str | None, ...] = ()
