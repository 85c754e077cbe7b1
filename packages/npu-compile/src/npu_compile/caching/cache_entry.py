"""One compilation as plain data, which `marshal` writes and reads."""

from __future__ import annotations

import dataclasses
import marshal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType

    from npu_compile.caching.portable_code import Reference


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StoredFunction:
    """A generated function.

    Attributes:
        code: of it.
        references: what it reads from its module, by name.
        cells: what it closes over, by name; for a piece its place among the pieces.
        defaults: of its parameters.
    """

    code: CodeType
    references: dict[str, Reference]
    cells: dict[str, Reference | int]
    defaults: tuple[Reference, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StoredPiece:
    """One piece of a split graph.

    Attributes:
        label: how messages call it.
        is_splitting: whether it runs splitting ops.
        code: place of its function among the functions; equal pieces share one.
    """

    label: str
    is_splitting: bool
    code: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry:
    """What Dynamo, the fusions and the splitter made of a model, and what it depends on.

    Attributes:
        entry: what Dynamo runs in the model's place: takes the model's arguments, calls the graph.
        graph_name: the name by which it calls the graph.
        graph: the graph, or the stitched function of its pieces.
        functions: of the pieces.
        pieces: in order.
        source: of the stitched function.
        read: reads all values that the graph depends on.
        names: of these values.
        checks: the kinds of checks of each.
        contents: what each was, as (kind, text).
        aliases: which of the tensors are one.
        modules: what ``G`` stands for in the names.
        operators: name and content of each operator of the graph.
        plan: the split plan as JSON.
        fusions: the report of the fusions, pickled.
    """

    entry: StoredFunction
    graph_name: str
    graph: StoredFunction
    functions: tuple[StoredFunction, ...]
    pieces: tuple[StoredPiece, ...]
    source: str
    read: CodeType
    names: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]
    contents: tuple[tuple[str, str], ...]
    aliases: tuple[int, ...]
    modules: dict[str, Reference]
    operators: dict[str, str]
    plan: str | None
    fusions: bytes | None

    def to_bytes(self) -> bytes:
        """Return all of it; only this version of Python reads it."""
        return marshal.dumps(dataclasses.asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> CacheEntry:
        """Return what was written.

        Raises:
            ValueError: it is something else.
        """
        try:
            values: dict[str, Any] = marshal.loads(data)  # noqa: S302 - its hash was compared
            return cls(
                **{
                    **values,
                    "entry": StoredFunction(**values["entry"]),
                    "graph": StoredFunction(**values["graph"]),
                    "functions": tuple(StoredFunction(**each) for each in values["functions"]),
                    "pieces": tuple(StoredPiece(**each) for each in values["pieces"]),
                }
            )
        except (EOFError, KeyError, TypeError) as error:
            raise ValueError(f"not what this version writes: {error!r}") from error
