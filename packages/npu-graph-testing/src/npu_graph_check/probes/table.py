"""All probes, by group, in the order in which they run."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING

from npu_graph_check.errors import UnknownProbeError
from npu_graph_check.probes.attention.table import ATTENTION
from npu_graph_check.probes.capture.table import CAPTURE
from npu_graph_check.probes.contract.table import CONTRACT
from npu_graph_check.probes.decode.table import DECODE
from npu_graph_check.probes.environment.table import ENVIRONMENT
from npu_graph_check.probes.fusions.table import FUSIONS
from npu_graph_check.probes.memory.table import MEMORY
from npu_graph_check.probes.operators.table import OPERATORS
from npu_graph_check.probes.questions.table import QUESTIONS
from npu_graph_check.probes.runtime.table import RUNTIME
from npu_graph_check.probes.times.table import TIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_check.probe import Probe


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Probes of one subject; their ids begin with its name."""

    name: str
    title: str
    probes: tuple[Probe, ...]


GROUPS = (
    Group(name="environment", title="Versions, device and settings", probes=ENVIRONMENT),
    Group(
        name="capture",
        title="Streams, events, capture, replay, external events, task groups and updates",
        probes=CAPTURE,
    ),
    Group(name="memory", title="Memory of the device and the host, and copies", probes=MEMORY),
    Group(name="contract", title="What npu-graph-runtime asks of a device", probes=CONTRACT),
    Group(
        name="attention",
        title="Attention kinds, captured and updated under changing lengths",
        probes=ATTENTION,
    ),
    Group(
        name="operators",
        title="Rounding, ties, masked rows, NaN and refused dtypes of operators",
        probes=OPERATORS,
    ),
    Group(name="fusions", title="Fused operators against what they replace", probes=FUSIONS),
    Group(
        name="runtime",
        title="Pieces, segments, whole steps, sleep and wake, and what captures cost",
        probes=RUNTIME,
    ),
    Group(
        name="decode", title="A small decoder in every mode, bitwise against eager", probes=DECODE
    ),
    Group(name="times", title="Times of steps, updates, replays and kernels", probes=TIMES),
    Group(name="questions", title="Open questions that only a device answers", probes=QUESTIONS),
)


def all_probes() -> tuple[Probe, ...]:
    """Return every probe, in the order in which they run."""
    return tuple(probe for group in GROUPS for probe in group.probes)


def find_probe(name: str) -> Probe:
    """Return a probe by its id.

    Raises:
        UnknownProbeError: there is none.
    """
    return chosen_probes([name])[0]


def chosen_probes(names: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probes that names choose, in the order of the table; all where there are none.

    Args:
        names: ids of probes, and names of groups.

    Raises:
        UnknownProbeError: a name that is neither.
    """
    probes = all_probes()
    known = {probe.id for probe in probes} | {group.name for group in GROUPS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            groups = ", ".join(group.name for group in GROUPS)
            raise UnknownProbeError(
                f"choosing probes: expected a group ({groups}) or a probe of `npu-graph-check "
                f"list`, found {name!r}{meant}"
            )
    wanted = set(names)
    return tuple(
        probe for probe in probes if not wanted or probe.id in wanted or probe.group in wanted
    )
