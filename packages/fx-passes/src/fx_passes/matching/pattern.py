"""A pattern: a plain function on tensors, traced once, without a device, for the matcher."""

from __future__ import annotations

import inspect
import operator
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from fx_passes.errors import PatternError
from fx_passes.graph_argument import literals_equal
from fx_passes.memory.effect import EffectTable
from fx_passes.normal_form.normalize import normalize_nodes
from fx_passes.normal_form.operator_signature import SignatureTable
from fx_passes.torch_internals import OpOverload, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fx_passes.matching.search_program import SearchProgram


T = TypeVar("T")

aten = torch.ops.aten
_LABEL = "fx_passes_label"
# What a parameter of each kind looks like while overloads are chosen. The shapes say nothing.
_LITERALS = MappingProxyType(
    {"int": 1, "float": 1.0, "bool": True, "str": "", "Sequence[int]": [1], "None": None}
)


def label(value: T, name: str) -> T:
    """Name a value inside a pattern, so that a match can return its node.

    Args:
        value: An intermediate value of the pattern.
        name: The name, unique in the pattern.

    Returns:
        The value itself; on tensors the function does nothing.
    """
    if isinstance(value, Proxy):
        value.node.meta[_LABEL] = name
    return value


@dataclass(eq=False, slots=True)
class PatternNode:
    """A value of a pattern.

    Attributes:
        index: Number of the value in its pattern.
        name: Name for messages.
        users: Values computed from this one.
    """

    index: int
    name: str
    users: list[PatternNode] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class PatternParameter(PatternNode):
    """A parameter of the pattern function.

    Attributes:
        kind: `tensor`, `optional_tensor`, `tensors` (a list of any length), `literal` (a number, a
            list of numbers, a dtype, ..., or a symbolic number) or `any`.
    """

    kind: str = "any"


@dataclass(eq=False, slots=True)
class PatternCall(PatternNode):
    """A call of an operator.

    Attributes:
        operators: The operators that match, that of the pattern first.
        arguments: All arguments in the order of the schema: pattern nodes, literals, or lists.
        commutative: Whether the first two arguments may be exchanged.
    """

    operators: tuple[OpOverload, ...] = ()
    arguments: tuple[object, ...] = ()
    commutative: bool = False


@dataclass(eq=False, slots=True)
class PatternElement(PatternNode):
    """One result of an operator that has several."""

    source: PatternCall | None = None
    position: int = 0


@dataclass(frozen=True, kw_only=True)
class CompiledPattern:
    """A traced pattern.

    Attributes:
        name: Name of the pattern function.
        nodes: All values, arguments before the calls that use them; `nodes[i].index == i`.
        outputs: Values that may be used outside of a match, by name.
        labels: Values that have a name inside the pattern.
        searches: The code of searches that begin at a call, by the index of the call; see
            `compile_search`. Filled when first needed.
    """

    name: str
    nodes: tuple[PatternNode, ...]
    outputs: Mapping[str, PatternNode]
    labels: Mapping[str, PatternNode]
    searches: dict[int, SearchProgram] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def calls(self) -> tuple[PatternCall, ...]:
        """The calls of operators, in order."""
        return tuple(node for node in self.nodes if isinstance(node, PatternCall))

    @cached_property
    def elements(self) -> tuple[PatternElement, ...]:
        """The elements unpacked from calls with several results, in order."""
        return tuple(node for node in self.nodes if isinstance(node, PatternElement))

    @cached_property
    def parameters(self) -> tuple[PatternParameter, ...]:
        """The parameters, in order."""
        return tuple(node for node in self.nodes if isinstance(node, PatternParameter))

    @cached_property
    def twins(self) -> Mapping[int, tuple[int, ...]]:
        """For each output that is a call, the other outputs that are calls of the same operators.

        By index. As they are different outputs, one call of the graph must not match both.
        """
        calls = [each for each in self.outputs.values() if isinstance(each, PatternCall)]
        return {
            call.index: tuple(
                other.index
                for other in calls
                if other is not call and other.operators == call.operators
            )
            for call in calls
        }


# A view is a reshape that is known not to copy, so a pattern with a reshape matches both. The
# overloads with a number for the second operand differ only in what they accept.
_MATCHED_AS = MappingProxyType(
    {
        aten.view.default: aten.reshape.default,
        # What AOT leaves of a reshape.
        aten._unsafe_view.default: aten.reshape.default,  # noqa: SLF001 - the name of the operator
        aten.split.sizes: aten.split_with_sizes.default,
        aten.add.Scalar: aten.add.Tensor,
        aten.mul.Scalar: aten.mul.Tensor,
        aten.div.Scalar: aten.div.Tensor,
    }
)


def matching_operator(target: OpOverload) -> OpOverload:
    """Return the operator that represents all equivalent ones in a pattern."""
    return _MATCHED_AS.get(target, target)


def equivalent_operators(target: OpOverload) -> tuple[OpOverload, ...]:
    """Return all operators for which `matching_operator` gives this one, itself first."""
    return (target, *(each for each, same in _MATCHED_AS.items() if same is target))


def _kind(parameter: inspect.Parameter) -> tuple[str, object]:
    """Return the kind of a parameter and an example of its values."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return "any", torch.empty(2, 2, device="meta")
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    parts = {part.strip().split(".")[-1] for part in text.split("|")}
    if "Tensor" in parts:
        kind = "optional_tensor" if "None" in parts else "tensor"
        return kind, torch.empty(2, 2, device="meta")
    for part in text.replace("None", "").split("|"):
        found = _kind_of_type(part.strip())
        if found is not None:
            return found
    raise PatternError(
        f"reading the parameter {parameter.name!r} of a pattern: its annotation {text!r} is not "
        "one of Tensor, Sequence[Tensor], int, float, bool, str, Sequence[int], torch.dtype "
        "(each also `| None`)"
    )


def _kind_of_type(name: str) -> tuple[str, object] | None:
    tensor = torch.empty(2, 2, device="meta")
    if name.startswith(("list[int", "Sequence[int", "tuple[int")):
        return "literal", [1]
    if name.startswith(("list[", "Sequence[", "tuple[")) and "Tensor" in name:
        return "tensors", [tensor, tensor]
    if name == "object":
        return "any", tensor
    if name.endswith("dtype"):
        return "literal", torch.float32
    return ("literal", _LITERALS[name]) if name in _LITERALS else None


def compile_pattern(function: Callable[..., object]) -> CompiledPattern:
    """Trace a pattern function once, on no device.

    Args:
        function: A plain function. Its parameters are the inputs of the pattern: those annotated
            `Tensor` match tensors, those annotated with a Python type match literals and symbolic
            numbers, whatever their value. Literals written in the body match only themselves. It
            returns a dict of the values that may be used outside of a match, by name.

    Raises:
        PatternError: The function fails on symbolic values, returns something else, contains
            an operation that is no operator or declares that it writes, or computes something that
            none of its outputs needs.
    """
    name = getattr(function, "__qualname__", repr(function))
    graph = Graph()
    tracer = GraphAppendingTracer(graph)
    proxies: list[Proxy] = []
    kinds: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        kind, example = _kind(parameter)
        kinds[parameter.name] = kind
        node = graph.placeholder(parameter.name)
        node.meta["val"] = example
        proxies.append(Proxy(node, tracer))
    try:
        returned = function(*proxies)
    except Exception as error:
        raise PatternError(f"tracing the pattern {name}: {error}") from error
    if not isinstance(returned, dict) or not all(
        isinstance(value, Proxy) for value in returned.values()
    ):
        raise PatternError(
            f"tracing the pattern {name}: expected a dict from output names to values, found "
            f"{type(returned).__name__}"
        )
    outputs = {str(key): value.node for key, value in returned.items()}
    _complete(graph)
    return read_pattern(name, graph, kinds, outputs, {})


def read_pattern(
    name: str,
    graph: Graph,
    kinds: Mapping[str, str],
    outputs: Mapping[str, Node],
    labels: Mapping[str, Node],
) -> CompiledPattern:
    """Read a graph as a pattern.

    Args:
        name: Name of the pattern, for messages.
        graph: The graph, which is put into normal form. It has no output node.
        kinds: The kind of each placeholder; see `PatternParameter.kind`.
        outputs: Values that may be used outside of a match, by name.
        labels: Values that have a name inside the pattern.

    Raises:
        PatternError: The graph contains an operation that is no operator or declares that it
            writes, or computes something that none of its outputs needs.
    """
    for label_name, node in labels.items():
        node.meta[_LABEL] = label_name
    normalize_nodes(graph)
    return _PatternReader(name, kinds).read(graph, outputs)


def _complete(graph: Graph) -> None:
    """Give every computed value except tuples a stand-in, so that overloads can be chosen."""
    for node in graph.nodes:
        # A call has several results if its users take elements.
        is_tuple = any(
            user.target is operator.getitem and isinstance(user.args[1], int) for user in node.users
        )
        if node.op in {"call_function", "call_method"} and not is_tuple:
            node.meta["val"] = torch.empty(2, 2, device="meta")


class _PatternReader:
    def __init__(self, name: str, kinds: Mapping[str, str]) -> None:
        self._name = name
        self._kinds = kinds
        self._signatures = SignatureTable()
        self._effects = EffectTable()
        self._read: dict[Node, PatternNode] = {}
        self._nodes: list[PatternNode] = []
        self._labels: dict[str, PatternNode] = {}

    def read(self, graph: Graph, outputs: Mapping[str, Node]) -> CompiledPattern:
        for node in graph.nodes:
            read = self._read_node(node)
            self._read[node] = read
            self._nodes.append(read)
            if _LABEL in node.meta:
                self._labels[node.meta[_LABEL]] = read
        named = {key: self._output(key, node) for key, node in outputs.items()}
        self._require_used(set(map(id, named.values())))
        self._require_connected()
        return CompiledPattern(
            name=self._name, nodes=tuple(self._nodes), outputs=named, labels=self._labels
        )

    def _output(self, key: str, node: Node) -> PatternNode:
        read = self._read[node]
        if isinstance(read, PatternParameter):
            raise PatternError(
                f"reading the pattern {self._name}: the output {key!r} is a parameter, which a "
                "match does not compute; leave it out"
            )
        return read

    def _require_used(self, outputs: set[int]) -> None:
        if not any(isinstance(node, PatternCall) for node in self._nodes):
            raise PatternError(f"reading the pattern {self._name}: it calls no operator")
        for node in self._nodes:
            if not node.users and id(node) not in outputs:
                raise PatternError(
                    f"reading the pattern {self._name}: nothing uses `{node.name}`; return it as "
                    "an output or leave it out"
                )

    def _require_connected(self) -> None:
        """Refuse a pattern of which a part cannot be reached from the rest."""
        groups: list[set[int]] = []
        for node in self._nodes:
            near = {node.index, *(user.index for user in node.users)}
            touched = [group for group in groups if not near.isdisjoint(group)]
            groups = [group for group in groups if near.isdisjoint(group)]
            groups.append(near.union(*touched))
        if len(groups) > 1:
            alone = sorted(self._nodes[index].name for index in min(groups, key=len))
            raise PatternError(
                f"reading the pattern {self._name}: {alone} share no value with the rest, so a "
                "match of the one says nothing of the other; make two rules of it"
            )

    def _read_node(self, node: Node) -> PatternNode:
        index = len(self._nodes)
        if node.op == "placeholder":
            # FX renames parameters that are called like builtins.
            name = str(node.target)
            return PatternParameter(index, name, kind=self._kinds[name])
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            source = self._read[node.args[0]]
            if isinstance(source, PatternCall) and isinstance(node.args[1], int):
                element = PatternElement(index, node.name, source=source, position=node.args[1])
                source.users.append(element)
                return element
        target = node.target
        bound = self._signatures.arguments(node)
        if not isinstance(target, OpOverload) or bound is None:
            raise PatternError(
                f"reading the pattern {self._name}: `{node.format_node()}` is not the call of a "
                "known operator; use torch.ops, tensor methods, or functions of torch"
            )
        effect = self._effects.of(node)
        if effect.writes and not effect.hidden:
            raise PatternError(
                f"reading the pattern {self._name}: {target} writes to its arguments; a pattern "
                "must be free of side effects"
            )
        matched = matching_operator(target)
        call = PatternCall(
            index,
            node.name,
            operators=equivalent_operators(matched),
            arguments=tuple(self._argument(argument) for argument in bound),
        )
        # a + alpha * b may only be turned round where the pattern says what alpha is.
        call.commutative = matched is aten.mul.Tensor or (
            matched is aten.add.Tensor and literals_equal(call.arguments[2], 1)
        )
        for used in sources_of(call):
            if call not in used.users:
                used.users.append(call)
        return call

    def _argument(self, argument: object) -> object:
        if isinstance(argument, Node):
            return self._read[argument]
        if isinstance(argument, (list, tuple)):
            return [self._argument(element) for element in argument]
        return argument


def sources_of(node: PatternNode) -> list[PatternNode]:
    """Return the values that a value of a pattern is computed from directly."""
    if isinstance(node, PatternElement):
        return [] if node.source is None else [node.source]
    arguments = node.arguments if isinstance(node, PatternCall) else ()
    return [each for each in tree_leaves(arguments) if isinstance(each, PatternNode)]


def describe(item: object) -> str:
    """Return the description of a pattern value, or a graph's node or literal, for reports."""
    if isinstance(item, Node):
        if item.target is operator.getitem:
            source, position, *_ = item.args
            return f"`{item.name}` (result {position} of `{source}`)"
        return f"`{item.name}` ({item.target})" if item.op == "call_function" else f"`{item.name}`"
    if isinstance(item, PatternCall):
        return f"a call of {item.operators[0]}"
    if isinstance(item, PatternElement):
        return f"result {item.position} of an operator"
    if isinstance(item, PatternParameter):
        kinds = {"tensor": "a tensor", "optional_tensor": "a tensor or None", "tensors": "tensors"}
        return f"{kinds.get(item.kind, 'a literal')} for `{item.name}`"
    return repr(item)
