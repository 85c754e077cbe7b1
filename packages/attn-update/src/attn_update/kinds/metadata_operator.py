"""What an attention kind declares of the operator that makes its metadata on the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MetadataOperator:
    """An operator whose result an attention operator takes, such as how work is split over cores.

    Attributes:
        argument: The argument of attention that takes the result.
        operator: The operator, with its overload if that is not the default one.
        bounds: Its integer arguments that a step may not exceed, such as the largest length. A
            captured graph keeps what they were at the capture.
        stage: When it runs: see `attn_update.producers.Producer`.
    """

    argument: str
    operator: str
    bounds: frozenset[str]
    stage: int = 0
