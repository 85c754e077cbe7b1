"""The values that a compiled graph depends on: reads, compares and watches them."""

from __future__ import annotations

import ast
import builtins
import math
import operator
import types
from typing import TYPE_CHECKING, Any, Final

import torch

from npu_compile.caching.code_reader import (
    compared_members,
    plain_text,
    registered_classes,
)
from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.caching.value_content import Content, content_of, tensor_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from npu_compile.caching.code_reader import CodeReader
    from npu_compile.torch_internals import GuardOfDynamo

# What is known to be compared: by the value of its name, by its condition, or as state of torch.
_OF_A_VALUE: Final = frozenset(
    {
        "BOOL_MATCH",
        "BUILTIN_MATCH",
        "CLASS_MATCH",
        "CLOSURE_MATCH",
        "CONSTANT_MATCH",
        "DICT_CONTAINS",
        "DICT_KEYS_MATCH",
        "DICT_NOT_CONTAINS",
        "EMPTY_NN_MODULE_HOOKS_DICT",
        "EQUALS_MATCH",
        "FUNCTION_MATCH",
        "HASATTR",
        "ID_MATCH",
        "MAPPING_KEYS_CHECK",
        "MODULE_MATCH",
        "NONE_MATCH",
        "NOT_NONE_MATCH",
        "NOT_PRESENT_IN_GENERIC_DICT",
        "SEQUENCE_LENGTH",
        "TENSOR_MATCH",
        "TYPE_MATCH",
    }
)
_OF_CONDITIONS: Final = frozenset({"DUPLICATE_INPUT", "SHAPE_ENV"})
_OF_STATE: Final = frozenset(
    {
        "DEFAULT_DEVICE",
        "DETERMINISTIC_ALGORITHMS",
        "GLOBAL_STATE",
        "GRAD_MODE",
        "TORCH_FUNCTION_STATE",
    }
)
# Without gradients nothing is saved, so hooks on what is saved change nothing.
_WITHOUT_MEANING: Final = frozenset({"AUTOGRAD_SAVED_TENSORS_HOOKS"})


class ValueReader:
    """Reads all values with one generated function that evaluates each part of a path once.

    Names and conditions are expressions over ``L`` and ``G``.
    """

    def __init__(self, names: Sequence[str], conditions: Sequence[str]) -> None:
        self._lines: list[str] = []
        self._locals: dict[str, str] = {}
        self._used: set[str] = set()
        values = [self._read(name) for name in names]
        truths = [self._read(condition) for condition in conditions]
        body = "".join(f"    {line}\n" for line in self._lines)
        text = f"def read(L, G):\n{body}    return [{', '.join(values)}], [{', '.join(truths)}]\n"
        module = compile(text, "<values of a compiled graph>", "exec")
        self.code: types.CodeType = next(
            each for each in module.co_consts if isinstance(each, types.CodeType)
        )
        self.aliases = sorted(self._used)

    def _read(self, text: str) -> str:
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._used.update(
                str(ast.literal_eval(each.slice))
                for each in ast.walk(tree)
                if isinstance(each, ast.Subscript)
                and isinstance(each.value, ast.Name)
                and each.value.id == "G"
            )
            return self._local(tree.body)
        except (SyntaxError, ValueError) as error:
            raise UncacheableError(f"it depends on {text!r}, which is no expression") from error

    def _local(self, node: ast.expr) -> str:
        """Return the local that has an expression's value, or the expression if it is a name."""
        if isinstance(node, (ast.Name, ast.Constant)):
            return ast.unparse(node)
        text = ast.unparse(node)
        known = self._locals.get(text)
        if known is None:
            short = self._with_locals(node)
            known = self._locals[text] = f"v{len(self._locals)}"
            self._lines.append(f"{known} = {short}")
        return known

    def _with_locals(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._local(node.value)}.{node.attr}"
        if isinstance(node, ast.Subscript):
            return f"{self._local(node.value)}[{ast.unparse(node.slice)}]"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"not {self._local(node.operand)}"
        if isinstance(node, ast.Call) and not node.keywords:
            arguments = ", ".join(map(self._local, node.args))
            return f"{self._local(node.func)}({arguments})"
        return ast.unparse(node)


def function_of(code: types.CodeType) -> Callable[..., tuple[list[Any], list[Any]]]:
    """Return the function of a reader's code."""
    return types.FunctionType(code, {"__builtins__": builtins, "math": math, "torch": torch})


def selected(guards: Iterable[GuardOfDynamo]) -> tuple[dict[str, frozenset[str]], list[str]]:
    """Return the names, checks and conditions of the values that a graph depends on.

    Raises:
        UncacheableError: The kind of a check is not supported.
    """
    kinds: dict[str, set[str]] = {}
    conditions: dict[str, None] = {}
    for guard in guards:
        if guard.kind in _OF_CONDITIONS:
            conditions.update(dict.fromkeys(guard.conditions))
        elif guard.kind in _OF_A_VALUE and guard.name:
            kinds.setdefault(guard.name, set()).add(guard.kind)
            if guard.kind == "HASATTR":
                conditions.update(dict.fromkeys(guard.conditions))
        elif guard.kind not in _OF_STATE and guard.kind not in _WITHOUT_MEANING:
            raise UncacheableError(
                f"it depends on {guard.name or 'a state of torch'} by a {guard.kind} guard, which "
                "this cache does not know"
            )
    return {name: frozenset(each) for name, each in kinds.items()}, list(conditions)


class ValueChecks:
    """The dependencies of a graph, as found in this process; decides whether a call still fits.

    Args:
        kinds: the checks that Dynamo makes of each.
        dynamic_dims: dimensions of tensors whose sizes change between calls, by name of a value.
        modules: the modules that ``G`` stands for.
    """

    def __init__(
        self,
        read: Callable[..., tuple[list[Any], list[Any]]],
        names: Sequence[str],
        kinds: Sequence[frozenset[str]],
        *,
        dynamic_dims: Mapping[str, tuple[int, ...]],
        modules: Mapping[str, object],
    ) -> None:
        self._read = read
        self._names = names
        self._kinds = kinds
        self._dims = dynamic_dims
        self._modules = modules
        self._watched: list[tuple[Callable[[list[Any]], object], object]] = []
        self._absent: list[tuple[dict[str, Any], set[str]]] = []

    def contents(
        self, local_names: Mapping[str, object], reader: CodeReader
    ) -> tuple[list[Content], tuple[int, ...]]:
        """Return the compared content of each value, and which tensors are identical.

        From now on :meth:`still_fit` watches the values.

        Raises:
            UncacheableError: A value cannot be read or compared, or a condition is false.
        """
        values, truths = self._values(local_names)
        if not all(truths):
            raise UncacheableError("sizes or identities of its inputs are others")
        contents = []
        for name, kinds, value in zip(self._names, self._kinds, values, strict=True):
            try:
                if name in self._dims and isinstance(value, torch.Tensor):
                    content = Content("input", repr(tensor_layout(value, self._dims[name])))
                else:
                    content = content_of(value, kinds, reader)
            except UncacheableError as error:
                raise UncacheableError(f"it depends on {name}: {error}") from error
            contents.append(content)
        self._watch([content.kind for content in contents], values)
        self._absent = list(reader.absent.values())
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        return contents, _partition(tensors)

    def still_fit(self, local_names: Mapping[str, object]) -> bool:
        """Return whether all values are unchanged and the inputs fit."""
        try:
            values, truths = self._read(local_names, self._modules)
            return (
                all(truths)
                and all(found(values) == expected for found, expected in self._watched)
                and all(module.keys().isdisjoint(names) for module, names in self._absent)
            )
        except Exception:  # noqa: BLE001 - what cannot be read any more is not what it was
            return False

    def _values(self, local_names: Mapping[str, object]) -> tuple[list[Any], list[Any]]:
        try:
            return self._read(local_names, self._modules)
        except Exception as error:
            raise UncacheableError(
                f"a value that it depends on cannot be read: {type(error).__name__}: {error}"
            ) from error

    def _watch(self, kinds: Sequence[str], values: Sequence[Any]) -> None:
        self._watched = []
        for kind, found in _FOUND.items():
            picked = [index for index, each in enumerate(kinds) if each == kind]
            if picked:
                self._look(_picker(picked), found, values)
        inputs = [
            (index, self._dims[self._names[index]])
            for index, each in enumerate(kinds)
            if each == "input"
        ]
        if inputs:
            self._look(
                lambda values: [tensor_layout(values[index], dims) for index, dims in inputs],
                list,
                values,
            )
        tensors = [index for index, each in enumerate(kinds) if each in {"input", "tensor"}]
        if tensors:
            self._look(_picker(tensors), _partition, values)
        self._watched.append((_Members(_classes_of(kinds, values)).changed, False))
        lists = _lists_in_defaults(values)
        if lists:
            self._look(lambda _: lists, lambda found: list(map(plain_text, found)), values)

    def _look(
        self,
        pick: Callable[[Sequence[Any]], Any],
        found: Callable[[Any], object],
        values: Sequence[Any],
    ) -> None:
        def look(values: Sequence[Any]) -> object:
            return found(pick(values))

        self._watched.append((look, look(values)))


def _classes_of(kinds: Sequence[str], values: Sequence[Any]) -> list[type]:
    """Return the classes of objects, classes among the objects, and their bases."""
    own = {"attributes", "elements", "instance", "keys"}
    classes = [type(value) for kind, value in zip(kinds, values, strict=True) if kind in own]
    classes += [value for value in values if isinstance(value, type)]
    bases = (
        base for each in dict.fromkeys(classes) for base in (*each.__mro__, *type(each).__mro__)
    )
    return [base for base in dict.fromkeys(bases) if base.__module__ != "builtins"]


def _lists_in_defaults(values: Sequence[Any]) -> list[list[Any]]:
    """Return the lists in defaults of functions; Dynamo in torch 2.10 does not check them."""
    return [
        each
        for value in values
        if isinstance(value, types.FunctionType)
        for each in value.__defaults__ or ()
        if type(each) is list
    ]


class _Members:
    """The members of classes and the code of their functions, as of now.

    Changes that torch_npu and Dynamo make to torch's classes on first use are allowed.
    """

    def __init__(self, classes: Sequence[type]) -> None:
        self._classes = classes
        self._note()

    def changed(self, _: object) -> bool:
        """Return whether they differ now."""
        if self._codes != self._codes_now() or self._registered != self._registered_now():
            return True
        if not self._has_same_members():
            if self._own != self._own_members():
                return True
            self._note()
        return False

    def _note(self) -> None:
        self._members = [dict(vars(each)) for each in self._classes]
        self._own = self._own_members()
        self._functions = [
            function
            for members in self._members
            for member in members.values()
            for function in (
                (member.fget, member.fset, member.fdel)
                if isinstance(member, property)
                else (getattr(member, "__func__", member),)
            )
            if isinstance(function, types.FunctionType)
        ]
        self._codes = self._codes_now()
        self._registered = self._registered_now()

    def _has_same_members(self) -> bool:
        return all(
            len(vars(each)) == len(known)
            and all(map(operator.is_, vars(each).values(), known.values()))
            for each, known in zip(self._classes, self._members, strict=True)
        )

    def _registered_now(self) -> list[list[str]]:
        return list(map(registered_classes, self._classes))

    def _codes_now(self) -> _Same:
        parts = [part for each in self._functions for part in (each.__code__, each.__defaults__)]
        return _Same([*parts, *(each.__mro__ for each in self._classes)])

    def _own_members(self) -> list[object]:
        found: list[object] = []
        for each in self._classes:
            members = dict(compared_members(each))
            found += (tuple(members), _Same(list(members.values())))
        return found


def _picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return operator.itemgetter(*indices)


def _partition(values: Sequence[object]) -> tuple[int, ...]:
    """Return for each value the index of the first identical object."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(value), index) for index, value in enumerate(values))


def _of_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.shape,
        tensor.stride(),
        tensor.layout,
        tensor.requires_grad,
        tensor.is_inference(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


class _Same:
    """A set of objects that equals another one with the identical objects."""

    __slots__ = ("_held",)

    def __init__(self, held: Sequence[object]) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and all(map(operator.is_, self._held, other._held))

    __hash__ = None  # type: ignore[assignment]


# Before each call: with C's speed over all values of a kind, since a model of 64 layers has some
# thousand of them.
_FOUND: Final[Mapping[str, Callable[[Sequence[Any]], object]]] = types.MappingProxyType(
    {
        "constant": lambda values: (list(map(type, values)), list(map(repr, values))),
        "text": lambda values: list(map(plain_text, values)),
        "tensor": lambda values: list(map(_of_tensor, values)),
        "object": _Same,
        "function": lambda values: [
            (each.__code__, each.__defaults__, each.__kwdefaults__, tuple(vars(each)))
            for each in values
        ],
        "method": lambda values: [each.__func__.__code__ for each in values],
        "attributes": lambda values: [(type(each), tuple(vars(each))) for each in values],
        "keys": lambda values: [(type(each), tuple(map(repr, each))) for each in values],
        "elements": lambda values: [(type(each), tuple(map(type, each))) for each in values],
        "instance": lambda values: list(map(type, values)),
    }
)
