"""Converts compiled graphs to plain data and back: the functions that run, without the graphs."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_compile.caching.cache_entry import StoredFunction, StoredPiece
from npu_compile.caching.portable_code import found_by, reference_to, references_of
from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.torch_internals import OpOverload, OpOverloadPacket, overloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from npu_compile.caching.cache_entry import CacheEntry
    from piecewise_split import Piece


class PreparedPieces:
    """Records the pieces of the most recently compiled graph, with the callables that replace them.

    Args:
        prepare: creates the callable that replaces a piece from its function, its label and whether
            it is a splitting piece.
    """

    def __init__(self, prepare: Callable[[Piece], Callable[..., Any]]) -> None:
        self._prepare = prepare
        self.pieces: list[tuple[Piece, Callable[..., Any]]] = []

    def __call__(self, piece: Piece) -> Callable[..., Any]:
        """Prepare a piece."""
        if piece.index == 0:
            self.pieces.clear()
        prepared = self._prepare(piece)
        self.pieces.append((piece, prepared))
        return prepared


class StoredGraph(NamedTuple):
    """The parts of an entry that describe the graph; see `CacheEntry`."""

    graph: StoredFunction
    functions: tuple[StoredFunction, ...]
    pieces: tuple[StoredPiece, ...]
    source: str


def stored(
    compiled: Callable[..., Any],
    graph_module: torch.fx.GraphModule,
    pieces: Sequence[tuple[Piece, Callable[..., Any]]],
) -> StoredGraph:
    """Return a compiled graph as plain data.

    Raises:
        UncacheableError: It has tensors or functions that another process cannot find.
    """
    if getattr(compiled, "__self__", None) is graph_module:
        return StoredGraph(_of_module(graph_module), (), (), "")
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
    return StoredGraph(
        stored_function(compiled, places), tuple(functions.values()), tuple(described), str(source)
    )


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
