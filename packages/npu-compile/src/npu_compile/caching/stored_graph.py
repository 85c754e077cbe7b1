"""Converts compiled graphs to plain data and back: the functions that run, without the graphs."""

from __future__ import annotations

import builtins
import dataclasses
import dis
import importlib
import inspect
import itertools
import marshal
import types
from typing import TYPE_CHECKING, Any

from npu_compile.caching.code_reader import codes_of, is_versioned, plain_text
from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.torch_internals import OpOverload, OpOverloadPacket, overloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import CodeType

    import torch

    from piecewise_split import Piece


# A reference is a tuple that `marshal` can write: what it is, and where it is found.
Reference = tuple[Any, ...]


def reference_to(name: str, value: object) -> Reference:
    """Return how another process can find a value that generated code reads.

    Raises:
        UncacheableError: It has no name, or changes to it cannot be detected.
    """
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__)
    if value is builtins.__dict__:
        return ("builtins",)
    if type(value) in {bool, int, float, complex, str, bytes, type(None)}:
        return ("constant", value)
    if type(value) is tuple and plain_text(value) is not None:
        return ("tuple", tuple(reference_to(name, each) for each in value))
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(path, str) and is_versioned(value):
        reference = ("object", module, path)
        try:
            if found_by(reference) is value:
                return reference
        except (ImportError, AttributeError):
            pass
    raise UncacheableError(
        f"the graph reads {name}, a {type(value).__module__}.{type(value).__qualname__}, which is "
        "not found by a name that torch or Python give it"
    )


def found_by(reference: Reference) -> Any:
    """Return the value of a reference.

    Raises:
        ImportError: Its module does not exist.
        AttributeError: It is not in its module.
    """
    kind, *rest = reference
    if kind == "module":
        return importlib.import_module(rest[0])
    if kind == "builtins":
        return builtins.__dict__
    if kind == "constant":
        return rest[0]
    if kind == "tuple":
        return tuple(map(found_by, rest[0]))
    value: Any = importlib.import_module(rest[0])
    for part in rest[1].split("."):
        value = (
            inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
        )
    return value


def names_read(code: types.CodeType) -> Iterator[str]:
    """Yield the globals that code reads, including nested code."""
    for instruction in itertools.chain(*map(dis.get_instructions, codes_of(code))):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield str(instruction.argval)
        elif instruction.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
            raise UncacheableError(f"the graph's code writes the global {instruction.argval}")


def references_of(
    code: types.CodeType, module: Mapping[str, object], left_out: frozenset[str] = frozenset()
) -> dict[str, Reference]:
    """Return references to all globals that code reads, except built-ins and those left out.

    Raises:
        UncacheableError: as for `reference_to`.
    """
    names = dict.fromkeys(names_read(code))
    return {
        name: reference_to(name, module[name])
        for name in names
        if name not in left_out and name in module
    }


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


def stored(
    compiled: Callable[..., Any],
    graph_module: torch.fx.GraphModule,
    pieces: Sequence[tuple[Piece, Callable[..., Any]]],
) -> dict[str, Any]:
    """Return a compiled graph as the parts of an entry: graph, functions, pieces and source.

    ``pieces`` are those of the graph, each with the callable that replaces it.

    Raises:
        UncacheableError: It has tensors or functions that another process cannot find.
    """
    if getattr(compiled, "__self__", None) is graph_module:
        return {"graph": _of_module(graph_module), "functions": (), "pieces": (), "source": ""}
    source = getattr(compiled, "source", None)
    if not isinstance(compiled, types.FunctionType) or source is None:
        raise UncacheableError(f"the graph was compiled to a {type(compiled).__qualname__}")
    functions: dict[str, StoredFunction] = {}
    described = []
    for piece, _ in pieces:
        if piece.structural_key not in functions:
            functions[piece.structural_key] = _of_module(piece.graph_module)
        place = list(functions).index(piece.structural_key)
        described.append(
            StoredPiece(label=piece.label, is_splitting=piece.is_splitting, code=place)
        )
    places = {id(prepared): place for place, (_, prepared) in enumerate(pieces)}
    return {
        "graph": stored_function(compiled, places),
        "functions": tuple(functions.values()),
        "pieces": tuple(described),
        "source": str(source),
    }


def stored_function(
    function: types.FunctionType, places: Mapping[int, int] = types.MappingProxyType({})
) -> StoredFunction:
    """Return a generated function as plain data; ``places`` has indices of pieces, by address.

    Raises:
        UncacheableError: It reads something else.
    """
    code = function.__code__
    held = zip(code.co_freevars, function.__closure__ or (), strict=True)
    cells = {name: cell.cell_contents for name, cell in held}
    return StoredFunction(
        code=code,
        references=references_of(code, function.__globals__),
        cells={
            name: places[id(each)] if id(each) in places else reference_to(name, each)
            for name, each in cells.items()
        },
        defaults=tuple(reference_to("a default", each) for each in function.__defaults__ or ()),
    )


def rebuilt(
    entry: CacheEntry, prepare: Callable[[Callable[..., Any], str, bool], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return the compiled graph of an entry; `prepare` replaces each piece once, in order.

    Raises:
        ImportError: A module that it reads does not exist.
        AttributeError: A global that it reads is not in its module.
    """
    if not entry.pieces:
        return _method(entry.graph)
    functions = [_method(each) for each in entry.functions]
    prepared = [
        prepare(functions[piece.code], piece.label, piece.is_splitting) for piece in entry.pieces
    ]
    function = function_with(entry.graph, prepared)
    function.source = entry.source  # type: ignore[attr-defined]
    return function


def function_with(
    stored_function: StoredFunction,
    pieces: Sequence[object] = (),
    *,
    cells: Mapping[str, object] = types.MappingProxyType({}),
    more: Mapping[str, object] = types.MappingProxyType({}),
) -> types.FunctionType:
    """Recreate a function, with closure variables and globals that were not stored."""
    code = stored_function.code
    module = {name: found_by(each) for name, each in stored_function.references.items()}
    closed_over = {
        name: pieces[each] if isinstance(each, int) else found_by(each)
        for name, each in stored_function.cells.items()
    }
    closed_over.update(cells)
    return types.FunctionType(
        code,
        {**module, **more, "__builtins__": builtins},
        code.co_name,
        tuple(map(found_by, stored_function.defaults)),
        tuple(types.CellType(closed_over[name]) for name in code.co_freevars),
    )


def operators_of(graph_module: torch.fx.GraphModule) -> list[OpOverload]:
    """Return the operators that a graph calls, including those it names without an overload.

    Other functions belong to torch or Python, or the graph is rejected because it reads them.
    """
    found: dict[OpOverload, None] = {}
    for node in graph_module.graph.nodes:
        if isinstance(node.target, OpOverload):
            found[node.target] = None
        elif isinstance(node.target, OpOverloadPacket):
            found.update(dict.fromkeys(overloads_of(node.target)))
    return list(found)


def _of_module(graph_module: torch.fx.GraphModule) -> StoredFunction:
    for node in graph_module.graph.nodes:
        if node.op in {"get_attr", "call_module"}:
            raise UncacheableError(f"the graph holds {node.target}, which is no input of it")
    function = getattr(graph_module.forward, "__func__", None)
    if not isinstance(function, types.FunctionType):
        raise UncacheableError("the graph's forward is not the function that was generated of it")
    return stored_function(function)


class _GraphOfEntry:
    """Replaces the module whose method a graph's function is; nothing is read from it."""


def _method(stored_function: StoredFunction) -> Callable[..., Any]:
    method: Callable[..., Any] = types.MethodType(function_with(stored_function), _GraphOfEntry())
    return method
