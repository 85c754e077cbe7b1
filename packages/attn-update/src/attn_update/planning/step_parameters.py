"""Step parameters: the host arguments of attention that change at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.kinds.lengths import Lengths


@dataclass(frozen=True, kw_only=True)
class StepParameters:
    """The arguments of one step, by parameter group and argument name.

    Attributes:
        key: The graph key; a plan of another key rejects them.
        groups: For each parameter group the value of each declared argument. Lengths are
            one-dimensional integers on the host and are copied during the call. A rebound tensor
            (a block table) is on the device and belongs to the caller, who must keep it alive and
            unchanged until the replay of this step has finished.
    """

    key: Hashable
    groups: Mapping[str, Mapping[str, Lengths]] = field(default_factory=dict)
