"""The private names of torch that this package uses; no other file uses any.

Each function says in which versions of torch the name exists and why it is needed.
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

# torch 2.10 to 2.14: the types of operators in graphs, and of Dynamo's wrappers around regions.
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.graph import CodeGen

# torch 2.10 to 2.14: the name that torch writes for a function into the code of a graph.
from torch.fx.node import _get_qualified_name as qualified_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MODE_ENTERS",
    "MODE_EXITS",
    "SET_GRAD_ENABLED",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "consists_of_others",
    "mark_dynamic",
    "qualified_name",
    "returned_types",
    "special_calling_convention",
]

# torch 2.10 to 2.14: private functions that graphs of Dynamo call to change the grad mode, and to
# enter and leave autocast and inference mode.
SET_GRAD_ENABLED: object = torch._C._set_grad_enabled
MODE_ENTERS: frozenset[object] = frozenset(
    {torch.amp.autocast_mode._enter_autocast, torch.autograd.grad_mode._enter_inference_mode}
)
MODE_EXITS: frozenset[object] = frozenset(
    {torch.amp.autocast_mode._exit_autocast, torch.autograd.grad_mode._exit_inference_mode}
)


def returned_types(operator: OpOverload) -> Sequence[torch.JitType]:
    """Return the types of an operator's results.

    `_schema`, torch 2.10 to 2.14: there is no public API for them.
    """
    return [each.type for each in operator._schema.returns]


def consists_of_others(name: str) -> bool:
    """Return whether an operator is composite, so that ATen graphs do not contain it.

    `torch._C._dispatch_has_kernel_for_dispatch_key`, torch 2.10 to 2.14: there is no public API. It
    raises for overloads of TorchScript, such as ``aten::cos.int``, which have no kernel at all.

    Args:
        name: ``ns::op`` or ``ns::op.overload``; false if torch does not know it.
    """
    namespace, _, called = name.partition("::")
    base, _, overload = called.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if not isinstance(packet, OpOverloadPacket):
        return False
    overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    names = [getattr(packet, each).name() for each in overloads if overload in {"", each}]
    return any(
        torch._C._dispatch_has_kernel(each)
        and torch._C._dispatch_has_kernel_for_dispatch_key(each, "CompositeImplicitAutograd")
        for each in names
    )


def special_calling_convention(graph: torch.fx.Graph) -> str | None:
    """Return the name of a graph's calling convention, or None if it is that of a function.

    `_codegen`, torch 2.10 to 2.14: `Graph.set_codegen` is public, but there is no public getter.
    """
    codegen = graph._codegen
    return None if type(codegen) is CodeGen else type(codegen).__name__


def mark_dynamic(tensor: torch.Tensor, dimension: int) -> None:
    """Make the size of a dimension symbolic in Dynamo's graphs.

    `torch._dynamo.mark_dynamic`, torch 2.10 to 2.14: documented, but has no other public name.
    """
    torch._dynamo.mark_dynamic(tensor, dimension)
