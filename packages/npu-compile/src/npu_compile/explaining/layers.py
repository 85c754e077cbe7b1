"""Groups equal layers of a model, with their launches before and after fusion."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from npu_compile.explaining.launched_operators import LaunchedOperator

# A layer is an element of a list of modules: the first number in a module's path.
_LAYER = re.compile(r"^(?P<list>(?:[^.\d][^.]*\.)*[^.\d][^.]*)\.(?P<number>\d+)(?:\.|$)")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """Consecutive layers with the same launches.

    Attributes:
        first: path of the first layer's module; empty for operators outside layers.
        before: launches of the first layer before fusion.
        after: launches of the first layer after fusion.
    """

    first: str
    last: str
    count: int
    before: tuple[LaunchedOperator, ...]
    after: tuple[LaunchedOperator, ...]

    @property
    def title(self) -> str:
        """Return the name of the group, such as ``model.layers.1 to model.layers.34 (x 34)``."""
        if not self.first:
            return "outside of layers"
        return self.first if self.count == 1 else f"{self.first} to {self.last} (x {self.count})"

    def to_mapping(self) -> dict[str, Any]:
        """Return one layer of the group as plain data for JSON."""
        return {
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "launches": {"before": len(self.before), "after": len(self.after)},
            "bytes": {"before": bytes_of(self.before), "after": bytes_of(self.after)},
        }

    def __str__(self) -> str:
        launches = f"{len(self.after)} launches, before fusion {len(self.before)}"
        moved = f"{shown_bytes(bytes_of(self.after))}, before fusion "
        each = " each" if self.count > 1 else ""
        return f"{self.title}: {launches}; {moved}{shown_bytes(bytes_of(self.before))}{each}"


def fold_layers(
    before: Sequence[LaunchedOperator], after: Sequence[LaunchedOperator]
) -> tuple[LayerGroup, ...]:
    """Return the layers of a model in order, equal neighbours merged; other operators come last."""
    by_layer: dict[str, tuple[list[LaunchedOperator], list[LaunchedOperator]]] = {}
    for side, operators in enumerate((before, after)):
        for each in operators:
            by_layer.setdefault(_layer_of(each), ([], []))[side].append(each)
    outside = by_layer.pop("", None)
    groups = [
        _group([layer for layer, _ in members], *members[0][1])
        for _, found in itertools.groupby(by_layer.items(), key=_signature)
        for members in [list(found)]
    ]
    if outside is not None:
        groups.append(_group([""], *outside))
    return tuple(groups)


def bytes_of(operators: Iterable[LaunchedOperator]) -> int | None:
    """Return the bytes that operators read and write, or ``None`` if a size is not known."""
    total = 0
    for each in operators:
        if each.bytes is None:
            return None
        total += each.bytes
    return total


def shown_bytes(count: int | None) -> str:
    """Format a number of bytes in a suitable unit."""
    if count is None:
        return "bytes depend on dynamic sizes"
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _group(
    layers: Sequence[str],
    before: Sequence[LaunchedOperator],
    after: Sequence[LaunchedOperator],
) -> LayerGroup:
    return LayerGroup(
        first=layers[0],
        last=layers[-1],
        count=len(layers),
        before=tuple(before),
        after=tuple(after),
    )


def _layer_of(each: LaunchedOperator) -> str:
    found = _LAYER.match(each.module)
    return f"{found['list']}.{found['number']}" if found else ""


def _signature(
    layer: tuple[str, tuple[list[LaunchedOperator], list[LaunchedOperator]]],
) -> tuple[object, ...]:
    """Return the key by which layers are compared: their list and all their launches."""
    name, sides = layer
    return (name.rpartition(".")[0], *(tuple(_parts(name, each)) for each in sides))


def _parts(
    layer: str, operators: Iterable[LaunchedOperator]
) -> Iterator[tuple[str, str, str, int | None]]:
    for each in operators:
        yield each.module.removeprefix(layer), each.name, each.shapes, each.bytes
