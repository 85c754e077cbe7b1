"""Straight-line code that tries the first way in which a pattern may fit, made once a pattern.

The matcher interprets a pattern and can take back what it tried; most places fit at once or not at
all. For these the pattern is spelt out as one Python function without loops over the pattern.
Whatever that function does not decide, it leaves to the matcher: it finds what the matcher would
find first, or nothing.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal
from fx_passes.matching.pattern import PatternCall, PatternElement, PatternNode, PatternParameter
from fx_passes.normal_form.operator_signature import OperatorSignature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fx_passes.matching.pattern import CompiledPattern

    Bind = Callable[[Node], Sequence[object] | None]
    SearchProgram = Callable[[Node, Bind], Sequence[object] | None]

__all__ = ["compile_search"]


def compile_search(
    pattern: CompiledPattern,
    anchor: PatternCall,
    steps: Iterable[tuple[PatternNode, PatternNode, bool]],
    unset: object,
) -> SearchProgram:
    """Spell out a pattern from one of its calls on.

    Args:
        pattern: The pattern.
        anchor: The call at which a search begins.
        steps: How the values that do not lead to the anchor are reached: the value, the one it is
            a user of, and whether it may be missing.
        unset: The mark for a value that the graph does not compute.

    Returns:
        A function of a candidate, which is a call of the anchor's operator, and of what binds the
        arguments of a call (see `SignatureTable.arguments`). It returns what each value of the
        pattern stands for, by index, or None if the first way does not lead to the end.
    """
    writer = _Writer(pattern, unset)
    writer.call(anchor, "candidate", known=True)
    for node, source, optional in steps:
        writer.step(node, source, optional=optional)
    values = ", ".join(writer.name_of(node) for node in pattern.nodes)
    body = "\n    ".join([*writer.lines, f"return ({values},)"])
    source_code = f"def search(candidate, bind):\n    {body}\n"
    namespace: dict[str, Any] = dict(writer.constants)
    exec(compile(source_code, f"<search for {pattern.name}>", "exec"), namespace)  # noqa: S102 - written above, from the pattern alone
    found: SearchProgram = namespace["search"]
    return found


class _Writer:
    def __init__(self, pattern: CompiledPattern, unset: object) -> None:
        self._pattern = pattern
        self.lines: list[str] = []
        self.constants: dict[str, object] = {
            "Node": Node,
            "Tensor": torch.Tensor,
            "getitem": operator.getitem,
            "literals_equal": literals_equal,
            "unset": unset,
        }
        self._bound: set[int] = set()

    def name_of(self, node: PatternNode) -> str:
        return f"v{node.index}" if node.index in self._bound else "unset"

    def step(self, node: PatternNode, source: PatternNode, *, optional: bool) -> None:
        if node.index in self._bound or source.index not in self._bound:
            return
        name = f"v{node.index}"
        self.lines.append(f"for {name} in v{source.index}.users:")
        if isinstance(node, PatternElement):
            test = f"{name}.target is getitem and {name}.args[1] == {node.position}"
        else:
            operators = node.operators if isinstance(node, PatternCall) else ()
            test = f"{name}.target in {self._constant(operators)}"
            for twin in self._twins(node):
                test += f" and {name} is not {twin}"
        self.lines += [f"    if {test}:", "        break", "else:"]
        self.lines.append(f"    {name} = unset" if optional else "    return None")
        self._bound.add(node.index)
        if isinstance(node, PatternCall):
            self._arguments(node, name)

    def call(self, node: PatternCall, found: str, *, known: bool = False) -> None:
        twins = self._twins(node)
        name = self._take(node, found)
        for twin in twins:
            self.lines += [f"if {name} is {twin}:", "    return None"]
        if not known:
            operators = self._constant(node.operators)
            self.lines += [
                f"if type({name}) is not Node or {name}.target not in {operators}:",
                "    return None",
            ]
        self._arguments(node, name)

    def _twins(self, node: PatternNode) -> list[str]:
        """Return the names of what a call must not be, as another output stands for it."""
        twins = self._pattern.twins.get(node.index, ())
        return [f"v{index}" for index in twins if index in self._bound]

    def _arguments(self, node: PatternCall, name: str) -> None:
        signature = OperatorSignature.of(node.operators[0])
        arguments, first = f"a{node.index}", self._constant(node.operators[0])
        missing = self._constant(signature.defaults)
        fits = f"{signature.required} <= len({arguments}) <= {signature.positional}"
        self.lines += [
            f"{arguments} = {name}.args",
            f"if {name}.target is {first} and not {name}.kwargs and {fits}:",
            f"    {arguments} += {missing}[len({arguments}):]",
            "else:",
            f"    {arguments} = bind({name})",
            f"    if {arguments} is None:",
            "        return None",
        ]
        self._list(node.arguments, arguments, len(node.operators) > 1)

    def _list(self, wanted: Sequence[object], found: str, may_end: bool) -> None:
        for position, want in enumerate(wanted):
            if may_end and not isinstance(want, (PatternNode, list)):
                # Aliases of an operator's overloads may end differently.
                test = f"len({found}) > {position} and not "
            else:
                test = "not "
            self._value(want, f"{found}[{position}]", test)

    def _value(self, want: object, found: str, test: str) -> None:
        if isinstance(want, PatternNode):
            self._node(want, found)
        elif isinstance(want, list):
            name = f"l{len(self.lines)}"
            self.lines += [
                f"{name} = {found}",
                f"if not isinstance({name}, (list, tuple)) or len({name}) != {len(want)}:",
                "    return None",
            ]
            self._list(want, name, may_end=False)
        else:
            constant = self._constant(want)
            same = f"({found} is {constant} or literals_equal({constant}, {found}))"
            self.lines += [f"if {test}{same}:", "    return None"]

    def _node(self, want: PatternNode, found: str) -> None:
        if want.index in self._bound:
            name = f"v{want.index}"
            literal = f"isinstance({found}, Node) or not literals_equal({name}, {found})"
            self.lines += [f"if {name} is not {found} and ({literal}):", "    return None"]
        elif isinstance(want, PatternCall):
            self.call(want, found)
        elif isinstance(want, PatternElement) and want.source is not None:
            name = self._take(want, found)
            self.lines += [
                f"if type({name}) is not Node or {name}.target is not getitem:",
                "    return None",
                f"if {name}.args[1] != {want.position}:",
                "    return None",
            ]
            self._node(want.source, f"{name}.args[0]")
        elif isinstance(want, PatternParameter):
            self._parameter(want, found)

    def _parameter(self, want: PatternParameter, found: str) -> None:
        name = self._take(want, found)
        if want.kind == "any":
            return
        if want.kind == "tensors":
            all_nodes = f"all(type(each) is Node for each in {name})"
            test = f"isinstance({name}, (list, tuple)) and {all_nodes}"
            self.lines += [f"if not ({test}):", "    return None"]
            return
        literal = "True" if want.kind == "literal" else "False"
        if want.kind == "optional_tensor":
            literal = f"{name} is None"
        value = f"{name}_value"
        self.lines += [
            f"if type({name}) is Node:",
            f"    {value} = {name}.meta.get('val')",
            f"    if {value} is None:",
            f"        {value} = {name}.meta.get('example_value')",
        ]
        if want.kind == "literal":
            self.lines.append(
                f"    if {value} is None or isinstance({value}, (Tensor, tuple, list)):"
            )
        else:
            self.lines.append(f"    if {value} is not None and not isinstance({value}, Tensor):")
        self.lines += ["        return None", f"elif not ({literal}):", "    return None"]

    def _take(self, node: PatternNode, found: str) -> str:
        name = f"v{node.index}"
        self._bound.add(node.index)
        self.lines.append(f"{name} = {found}")
        return name

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name
