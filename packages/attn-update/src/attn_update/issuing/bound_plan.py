"""A plan whose launches are prepared for an issuer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_update.issuing.updater import BoundLaunches
    from attn_update.planning.update_plan import UpdatePlan


@dataclass(slots=True, kw_only=True)
class BoundPlan:
    """The prepared state of a plan for the steps of one lane, which owns it.

    Attributes:
        plan: The plan, which does not change.
        launches: The launches prepared by an updater; None if they are called one by one.
        unbound_reason: Why they are called one by one; None if they are not.
        arguments: For each update of the plan the keyword arguments of its latest launch, if
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
