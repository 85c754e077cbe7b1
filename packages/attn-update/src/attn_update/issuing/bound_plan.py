"""A plan whose launches an issuer made ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_update.issuing.updater import BoundLaunches
    from attn_update.planning.update_plan import UpdatePlan


@dataclass(slots=True, kw_only=True)
class BoundPlan:
    """What an issuer needs of a plan in a step. Owned by the issuer's lane.

    Attributes:
        plan: The plan, which stays as it is.
        launches: The launches of the plan as an updater made them ready; None where they are
            called one by one.
        unbound_reason: Why they are called one by one; None where they are not.
        arguments: For each update of the plan the keyword arguments of its latest launch, where
            launches are called one by one.
    """

    plan: UpdatePlan
    launches: BoundLaunches | None
    unbound_reason: str | None
    arguments: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        """Copy the arguments, which steps overwrite."""
        updates = self.plan.updates if self.launches is None else ()
        self.arguments = [dict(update.launch) for update in updates]
