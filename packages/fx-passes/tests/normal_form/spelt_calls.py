"""Calls of torch's operators, in every spelling that a graph may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from fx_passes.normal_form.operator_signature import overload_names
from fx_passes.torch_internals import OpOverloadPacket, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

__all__ = ["SpeltCall", "spelt_calls"]


@dataclass(frozen=True, kw_only=True)
class SpeltCall:
    """One call in one of its spellings.

    Attributes:
        spelling: Name of the spelling.
        target: A function, or the name of a method.
        args: Positional arguments; for a method, the receiver comes first.
        kwargs: Keyword arguments.
    """

    spelling: str
    target: Callable[..., object] | str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def graph(self, fake: Callable[[Tensor], Tensor]) -> tuple[GraphModule, list[Tensor]]:
        """Return a module of only this call, and its input tensors.

        Args:
            fake: Makes the `meta["val"]` of a placeholder.
        """
        graph, tensors = Graph(), list[Tensor]()

        def placed(value: object) -> object:
            if isinstance(value, Tensor):
                node = graph.placeholder(f"tensor_{len(tensors)}")
                tensors.append(value.detach().clone())
                node.meta["val"] = fake(tensors[-1])
                return node
            return value

        def given(value: object) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(given, value)) if _is_plain(value) else value
            return placed(value)

        args = tuple(map(given, self.args))
        kwargs = {name: given(value) for name, value in self.kwargs.items()}
        if isinstance(self.target, str):
            node = graph.call_method(self.target, args, kwargs)
        else:
            node = graph.call_function(self.target, args, kwargs)
        graph.output((node, *graph.find_nodes(op="placeholder")))
        return GraphModule(torch.nn.Module(), graph), tensors


def _is_plain(value: Sequence[object]) -> bool:
    return type(value) in {list, tuple}


def spelt_calls(info: OpInfo, sample: SampleInput) -> Iterator[SpeltCall]:
    """Give every spelling of an operator on a sample: functions, methods, keywords, numbers.

    Args:
        info: The operator, of torch's own table.
        sample: What it is called with.
    """
    given: object = sample.input
    args = (given, *sample.args)
    for spelling, target in _targets(info, args):
        yield SpeltCall(spelling=spelling, target=target, args=args, kwargs=sample.kwargs)
    name = getattr(info.method_variant, "__name__", "")
    if name and isinstance(given, Tensor):
        yield SpeltCall(spelling="method", target=name, args=args, kwargs=sample.kwargs)
        yield from _other_spellings(name, args, sample.kwargs)
        for names in _argument_names(info.aten_name):
            kwargs = {**dict(zip(names[1:], args[1:], strict=False)), **sample.kwargs}
            yield SpeltCall(spelling="keywords", target=name, args=args[:1], kwargs=kwargs)
    name = getattr(info.inplace_variant, "__name__", "")
    if name and isinstance(given, Tensor):
        yield SpeltCall(spelling="in place", target=name, args=args, kwargs=sample.kwargs)
    yield from _other_spellings(info.op, args, sample.kwargs)
    if isinstance(given, Tensor) and isinstance(info.op, type(torch.add)):
        for names in _argument_names(info.aten_name):
            kwargs = dict(zip(("input", *names[1:]), args, strict=False))
            kwargs |= sample.kwargs
            yield SpeltCall(spelling="keywords", target=info.op, args=(), kwargs=kwargs)


def _argument_names(operator_name: str) -> list[tuple[str, ...]]:
    """Return the names of the arguments of each overload of an operator."""
    packet = getattr(torch.ops.aten, operator_name, None)
    if not isinstance(packet, OpOverloadPacket):
        return []
    schemas = [schema_of(getattr(packet, overload)) for overload in overload_names(packet)]
    names = (tuple(argument.name for argument in schema.arguments) for schema in schemas)
    return list(dict.fromkeys(names))


def _targets(info: OpInfo, args: tuple[Any, ...]) -> Iterator[tuple[str, Callable[..., object]]]:
    yield "function", info.op
    packet = getattr(torch.ops.aten, info.aten_name, None)
    if isinstance(packet, OpOverloadPacket):
        yield "packet", packet
    if len(args) <= 2:
        for variant in (info.operator_variant, info.inplace_operator_variant):
            if getattr(variant, "__name__", "getitem") != "getitem":
                yield "operator", variant


def _other_spellings(
    target: Callable[..., object] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[SpeltCall]:
    """Give a number for a list of equal ones, several numbers for a list, a tuple for a list."""
    for place, value in enumerate(args):
        if not isinstance(value, (list, tuple)) or not value or not _is_plain(value):
            continue
        if not all(isinstance(each, int) for each in value):
            continue
        before, after = args[:place], args[place + 1 :]
        other = tuple(value) if isinstance(value, list) else list(value)
        yield SpeltCall(
            spelling="other sequence", target=target, args=(*before, other, *after), kwargs=kwargs
        )
        if len(set(value)) == 1:
            yield SpeltCall(
                spelling="one number",
                target=target,
                args=(*before, value[0], *after),
                kwargs=kwargs,
            )
        if not after:
            yield SpeltCall(
                spelling="numbers", target=target, args=(*before, *value), kwargs=kwargs
            )
