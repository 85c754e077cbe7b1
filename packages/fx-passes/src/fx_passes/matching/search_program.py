"""Compiles a pattern to a Python function that searches for it at a candidate.

Operands of commutative calls are tried in both orders, and users of a value one by one, by loops
around all later steps, so the search continues wherever it fails. When the function is generated,
it is known which values are bound at each line, how far a failure there has come, and whether the
innermost loop could change the outcome: a loop that chose none of the failing values is left.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from fx_passes.graph_argument import literals_equal
from fx_passes.matching.pattern import (
    PatternCall,
    PatternElement,
    PatternNode,
    PatternParameter,
    describe,
)
from fx_passes.normal_form.operator_signature import OperatorSignature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fx_passes.matching.pattern import CompiledPattern

    Bind = Callable[[Node], Sequence[object] | None]
    Solution = tuple[object, ...]
    # Number of calls of the pattern that were found; whether a user of the value was searched, or
    # else the value itself does not match; what the pattern has there, described; the value in the
    # graph; and the nodes of the calls and elements that were found, without optional elements.
    Failure = tuple[int, bool, str, object, tuple[Node, ...]]
    SearchProgram = Callable[[Node, Bind, list[Solution], int], Failure | None]


# Only a pattern of many sums of anything needs more; then the search stays linear in the graph.
_TURNS = 512
# Python takes 20 blocks inside each other; what comes later stands in a function of its own.
_LOOPS = 15
# Types of literals of which two of one type are equal if `==` says so.
_COMPARABLE = frozenset({float, int, str})
# Names of what a search takes from the graph; all others are constants.
_TAKEN = re.compile(r"\b[vauxy]\d+\b")


def compile_search(
    pattern: CompiledPattern,
    anchor: PatternCall,
    steps: Iterable[tuple[PatternNode, PatternNode, bool]],
    unset: object,
) -> SearchProgram:
    """Generate the search for a pattern from one of its calls.

    Args:
        pattern: The pattern.
        anchor: The call at which a search begins.
        steps: How the values that do not lead to the anchor are reached: the value, the one it is
            a user of, and whether it may be missing.
        unset: The marker for a value that the graph does not compute.

    Returns:
        A function of a candidate, which is a call of the anchor's operator; of a function that
        binds the arguments of a call (see `SignatureTable.arguments`); of a list; and of the number
        of wanted solutions. It appends solutions to the list: the node of each value of the
        pattern, by index. It returns the furthest failure with at least two calls, if there was
        one.
    """
    writer = _Writer(pattern, unset)
    writer.begin()
    writer.call(anchor, "candidate", known=True)
    for node, source, optional in steps:
        writer.step(node, source, optional=optional)
    source_code = writer.end()
    namespace: dict[str, Any] = dict(writer.constants)
    exec(compile(source_code, f"<search for {pattern.name}>", "exec"), namespace)  # noqa: S102 - written above, from the pattern alone
    found: SearchProgram = namespace["search"]
    return found


class _Writer:
    def __init__(self, pattern: CompiledPattern, unset: object) -> None:
        self._pattern = pattern
        self._lines: list[str] = []
        self._indent = ""
        self._loops = 0
        # The functions that are open: at which indent each began, and how many loops it was in.
        self._parts: list[tuple[str, int]] = []
        self._depth = 0
        self._found: list[str] = []
        self._bound: set[int] = set()
        # For each name the innermost loop that its value comes from, counted from 1; 0 for none.
        self._chosen_in: dict[str, int] = {}
        self._all_loops = 0
        self.constants: dict[str, object] = {
            "Node": Node,
            "Tensor": torch.Tensor,
            "describe": describe,
            "getitem": operator.getitem,
            "literals_equal": literals_equal,
            "unset": unset,
        }

    def begin(self) -> None:
        """Write the head of the function."""
        self._write("def search(candidate, bind, solutions, wanted):")
        self._indent = "    "
        self._write("failure, depth, turns = None, 1, 0")

    def end(self) -> str:
        """Write the handling of a solution, and return the code."""
        found = (node.index for node in self._pattern.nodes)
        values = ", ".join(f"v{each}" if each in self._bound else "unset" for each in found)
        self._write(f"solutions.append(({values},))")
        self._write("if len(solutions) == wanted:", f"    return {self._stopped}")
        while self._parts:
            number = len(self._parts)
            self._indent, self._loops = self._parts.pop()
            self._write(f"if part_{number}():", f"    return {self._stopped}")
        self._indent = "    "
        self._write("return failure")
        return "\n".join([*self._lines, ""])

    def step(self, node: PatternNode, source: PatternNode, *, optional: bool) -> None:
        """Reach a value from one that it is a user of."""
        if node.index in self._bound:
            return
        name, users = f"v{node.index}", f"u{node.index}"
        if isinstance(node, PatternElement):
            test = f"each.target is getitem and each.args[1] == {node.position}"
        else:
            operators = node.operators if isinstance(node, PatternCall) else ()
            test = self._calls("each", operators)
            for twin in self._twins(node):
                test += f" and each is not {twin}"
        line = f"[each for each in v{source.index}.users if {test}]"
        self._take(users, line)
        if optional:
            # Others of the same place would only keep the call alive.
            self._take(name, f"{users}[0] if {users} else unset")
        else:
            expected = self._described(node)
            self._unless(users, expected, f"v{source.index}", is_user=True)
            self._loop(f"for {name} in {users}:", name)
        self._bind(node, sure=not optional)
        if isinstance(node, PatternCall):
            self._arguments(node, name)

    def call(self, node: PatternCall, found: str, *, known: bool = False) -> None:
        """Bind a call, with everything that leads to it."""
        name = f"v{node.index}"
        self._take(name, found)
        if not known:
            test = f"type({name}) is Node and {self._calls(name, node.operators)}"
            self._unless(test, self._described(node), name)
        for twin in self._twins(node):
            test = f"{name} is {twin}"
            self._write(f"if {test}:", f"    {self._onwards(test)}")
        self._bind(node)
        self._arguments(node, name)

    def _arguments(self, node: PatternCall, name: str) -> None:
        signature = OperatorSignature.of(node.operators[0])
        arguments = f"a{node.index}"
        whole, least, most = len(signature.names), signature.required, signature.positional
        unusual = f"{name}.kwargs"
        if len(node.operators) > 1:
            # Those of an alias may have other defaults.
            unusual += f" or {name}.target is not {self._constant(node.operators[0])}"
        self._take(arguments, f"{name}.args")
        if least == most == whole:
            self._write(f"if len({arguments}) != {whole} or {unusual}:")
        else:
            missing = self._constant(signature.defaults)
            self._write(
                f"given = len({arguments})",
                f"if {least} <= given <= {most} and not ({unusual}):",
                f"    if given != {whole}:",
                f"        {arguments} += {missing}[given:]",
                "else:",
            )
        self._write(f"    {arguments} = bind({name})")
        self._unless(f"{arguments} is not None", self._described(node), name)
        self._depth += 1
        places = [f"{arguments}[{position}]" for position in range(len(node.arguments))]
        if node.commutative:
            left, right = f"x{node.index}", f"y{node.index}"
            both = ", ".join(places[:2])
            turned = f"{places[1]}, {places[0]}"
            self._loop(f"for {left}, {right} in (({both}), ({turned})):", left, right)
            stop = f"    return {self._stopped}"
            self._write("turns += 1", f"if turns > {_TURNS}:", stop)
            places[:2] = left, right
        ends = arguments if len(node.operators) > 1 else None
        self._list(node.arguments, places, ends)

    def _list(self, wanted: Sequence[object], places: Sequence[str], ends: str | None) -> None:
        for position, (want, place) in enumerate(zip(wanted, places, strict=True)):
            if isinstance(want, PatternNode):
                self._node(want, place)
            elif isinstance(want, list):
                inner = self._described(want)
                test = f"isinstance({place}, (list, tuple)) and len({place}) == {len(want)}"
                self._unless(test, inner, place)
                self._list(want, [f"{place}[{each}]" for each in range(len(want))], None)
            else:
                constant = self._constant(want)
                tests = [f"{place} is {constant}", f"literals_equal({constant}, {place})"]
                if type(want) in _COMPARABLE:
                    # The same number is often another object.
                    kind = self._constant(type(want))
                    tests.insert(1, f"(type({place}) is {kind} and {place} == {constant})")
                test = " or ".join(tests)
                # Aliases of an operator's overloads may end differently.
                if ends is not None:
                    test = f"len({ends}) <= {position} or {test}"
                self._unless(test, self._described(want), place)

    def _node(self, want: PatternNode, found: str) -> None:
        name = f"v{want.index}"
        if want.index in self._bound:
            literal = f"type({found}) is not Node and literals_equal({name}, {found})"
            self._unless(f"{name} is {found} or ({literal})", f"describe({name})", found)
        elif isinstance(want, PatternCall):
            self.call(want, found)
        elif isinstance(want, PatternElement) and want.source is not None:
            self._take(name, found)
            is_element = f"type({name}) is Node and {name}.target is getitem"
            arguments = f"a{want.index}"
            self._chosen_in[arguments] = self._chosen_in[name]
            both = f"({arguments} := {name}.args)[1] == {want.position}"
            self._unless(f"{is_element} and {both}", self._described(want), name)
            self._bind(want)
            self._node(want.source, f"{arguments}[0]")
        elif isinstance(want, PatternParameter):
            self._parameter(want, found)

    def _parameter(self, want: PatternParameter, found: str) -> None:
        name = f"v{want.index}"
        self._take(name, found)
        self._bound.add(want.index)
        if want.kind == "any":
            return
        expected = self._described(want)
        if want.kind == "tensors":
            all_nodes = f"all(type(each) is Node for each in {name})"
            self._unless(f"isinstance({name}, (list, tuple)) and {all_nodes}", expected, name)
            return
        value = f"{name}_value"
        self._write(
            f"{value} = None",
            f"if type({name}) is Node:",
            f"    {value} = {name}.meta.get('val')",
            f"    if {value} is None:",
            f"        {value} = {name}.meta.get('example_value')",
        )
        if want.kind == "literal":
            known = f"{value} is not None and not isinstance({value}, (Tensor, tuple, list))"
            test = f"type({name}) is not Node or ({known})"
        else:
            test = f"type({name}) is Node and ({value} is None or isinstance({value}, Tensor))"
            if want.kind == "optional_tensor":
                test = f"{name} is None or {test}"
        self._unless(test, expected, name)

    def _twins(self, node: PatternNode) -> list[str]:
        """Return the names that a call must differ from, as another output is bound to them."""
        twins = self._pattern.twins.get(node.index, ())
        return [f"v{index}" for index in twins if index in self._bound]

    def _bind(self, node: PatternNode, *, sure: bool = True) -> None:
        self._bound.add(node.index)
        if sure:
            self._found.append(f"v{node.index}")

    def _unless(self, test: str, expected: str, found: str, *, is_user: bool = False) -> None:
        """Go on with the next attempt unless a test holds; keep the failure if it is the furthest.

        The depth is that of the calls found so far, whose arguments are being looked at.
        """
        self._write(f"if not ({test}):")
        if self._depth >= 2:
            nodes = "".join(f"{each}, " for each in self._found)
            failure = f"({self._depth}, {is_user}, {expected}, {found}, ({nodes}))"
            self._write(
                f"    if depth < {self._depth}:",
                f"        depth = {self._depth}",
                f"        failure = {failure}",
            )
        self._write(f"    {self._onwards(test)}")

    def _onwards(self, test: str) -> str:
        """The statement that goes to the next attempt."""
        if not self._loops:
            return "return failure"
        return "continue" if self._innermost(test) == self._all_loops else "break"

    def _innermost(self, text: str) -> int:
        """Return the innermost loop that the tested values depend on."""
        return max((self._chosen_in[name] for name in _TAKEN.findall(text)), default=0)

    def _take(self, name: str, value: str) -> None:
        self._chosen_in[name] = self._innermost(value)
        self._write(f"{name} = {value}")

    @property
    def _stopped(self) -> str:
        """The return value of a function when the whole search is over."""
        return "True" if self._parts else "failure"

    def _loop(self, head: str, *names: str) -> None:
        """Begin a loop around all later steps, which chooses the values of some names."""
        if self._loops == _LOOPS:
            self._parts.append((self._indent, self._loops))
            self._write(f"def part_{len(self._parts)}():")
            self._indent += "    "
            self._write("nonlocal failure, depth, turns")
            self._loops = 0
        # A function of its own begins with a loop.
        self._write(head)
        self._indent += "    "
        self._loops += 1
        self._all_loops += 1
        self._chosen_in.update(dict.fromkeys(names, self._all_loops))

    def _write(self, *lines: str) -> None:
        self._lines += [f"{self._indent}{line}" for line in lines]

    def _calls(self, name: str, operators: Sequence[object]) -> str:
        """Return the test that a node calls one of some operators."""
        if len(operators) == 1:
            return f"{name}.target is {self._constant(operators[0])}"
        return f"{name}.target in {self._constant(operators)}"

    def _described(self, expected: object) -> str:
        return self._constant(describe(expected))

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name
