"""One compilation as plain data that `marshal` can write and read."""

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
        references: references to the module globals that it reads, by name.
        cells: its closure variables, by name; a piece is given by its index.
        defaults: defaults of its parameters.
    """

    code: CodeType
    references: dict[str, Reference]
    cells: dict[str, Reference | int]
    defaults: tuple[Reference, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StoredPiece:
    """One piece of a split graph.

    Attributes:
        code: index of its function among the functions; equal pieces share one.
    """

    label: str
    is_splitting: bool
    code: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry:
    """The result of Dynamo, fusion and splitting for a model, and everything it depends on.

    Attributes:
        entry: the code that Dynamo runs in place of the model: it receives the model's arguments
            and calls the graph.
        graph_name: the name by which it calls the graph.
        graph: the graph, or the stitched function of its pieces.
        source: source code of the stitched function.
        read: function that reads all values that the graph depends on.
        checks: kinds of checks of each value.
        contents: content of each value at compile time, as (kind, text).
        aliases: which of the tensors are identical.
        modules: the modules that ``G`` stands for in the names.
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
        """Serialise the entry; only the same version of Python can read it."""
        return marshal.dumps(dataclasses.asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> CacheEntry:
        """Deserialise an entry.

        Raises:
            ValueError: The data is not an entry.
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
