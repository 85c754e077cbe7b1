"""The private names of torch that this package stands on, and nothing else of it does.

Each has a line that says in which versions of torch it is, and why it is needed. Two files keep
names of their own, which no other needs: `fx_passes.functional.mutable_calls` (the functional form
of operators that write) and `fx_passes.inductor` (Inductor's protocol of custom passes).
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

# torch 2.10 to 2.14: the type of what an operator says of its arguments and results, and whether an
# operator, by its qualified name, has a kernel of its own for a dispatch key, such as `Meta`.
from torch._C import FunctionSchema
from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel

# torch 2.10 to 2.14: lets the size of a dimension be a symbol in graphs of Dynamo.
from torch._dynamo import mark_dynamic

# torch 2.10 to 2.14: how a fake size names where it comes from, without which it has no symbol.
from torch._dynamo.source import ConstantSource

# torch 2.10 to 2.14: the types of operators in graphs, and of Dynamo's wrappers around regions.
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

# torch 2.10 to 2.14: tensors without memory, on which rewrites infer shapes and data types.
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

# torch 2.10 to 2.14: a context in which nobody sees what operators do, neither tracers nor fake
# tensors.
from torch.utils._python_dispatch import _disable_current_modes as without_modes

# torch 2.10 to 2.14: the order of nested values that torch itself goes by.
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import sympy  # type: ignore[import-untyped]  # brings no types; torch depends on it
    from torch.fx import Graph, Node

# What comes from torch as it is.
__all__ = [
    "ConstantSource",
    "FakeTensor",
    "FakeTensorMode",
    "FunctionSchema",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "has_kernel",
    "mark_dynamic",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "without_modes",
]

# torch 2.10 to 2.14: `torch.nn.functional` shows what is written in C++ (linear, gelu), and graphs
# of Dynamo call it, by objects of the private module.
BUILTIN_OWNERS: tuple[object, ...] = (torch, torch._C._nn, torch.Tensor)
"""Where torch keeps the functions that it implements in C++."""

# torch 2.10 to 2.14: what graphs traced in front of autograd call where Python enters `no_grad`.
SET_GRAD_ENABLED: object = torch._C._set_grad_enabled

# torch 2.10 to 2.14: what making a module calls, so that it stands in graphs of models that make
# one. It takes a text and counts.
LOG_API_USAGE: object = torch._C._log_api_usage_once


def schema_of(operator: OpOverload) -> FunctionSchema:
    """Return the schema of an operator: `_schema`, torch 2.10 to 2.14, the only road to it."""
    return operator._schema


def has_dispatch_modes() -> bool:
    """Return whether somebody records or changes what operators do, such as a tracer.

    `torch._C._len_torch_dispatch_stack`, torch 2.10 to 2.14: nothing public tells.
    """
    return torch._C._len_torch_dispatch_stack() > 0


def is_static_input(node: Node) -> bool:
    """Return whether an input of a graph of Dynamo is a weight: what a module or the code holds.

    The mark `_dynamo_static_input_type` that Dynamo leaves on parameters, buffers and tensors that
    are attributes of modules, torch 2.10 to 2.14: nothing public tells.
    """
    described = node.meta.get("tensor_dict")
    return isinstance(described, dict) and "_dynamo_static_input_type" in described


def without_class(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that shows the memory of one of a subclass, unseen by who records calls."""
    with without_modes():
        return tensor.as_subclass(torch.Tensor)


def write_count(tensor: torch.Tensor) -> int:
    """Return a number that grows when an operator writes a tensor or another that shows its memory.

    `Tensor._version`, torch 2.10 to 2.14: documented, and public by no other name. What is written
    through `tensor.data` is not counted; tensors of inference mode have none.
    """
    return tensor._version


def storage_key(tensor: torch.Tensor) -> int | None:
    """Return what tensors of one storage have in common, ``None`` for those that have no storage.

    `torch._C._has_storage` and `UntypedStorage._cdata`, torch 2.10 to 2.14: the storage of a fake
    tensor has no address. The number is valid as long as the tensor.
    """
    return tensor.untyped_storage()._cdata if torch._C._has_storage(tensor) else None


def calling_convention(graph: Graph) -> Any:
    """Return how the code of a graph takes its arguments, to be given to another graph.

    `_codegen`, torch 2.10 to 2.14: `Graph.set_codegen` is public, what it sets cannot be asked for.
    """
    return graph._codegen


def nodes_by_target(graph: Graph) -> Mapping[tuple[str, Any], Collection[Node]]:
    """Return a graph's own table of its nodes by kind and, for functions, by target.

    `_find_nodes_lookup_table`, torch 2.10 to 2.14: what is behind `Graph.find_nodes`, which answers
    for one target at a time.
    """
    return graph._find_nodes_lookup_table.table


def symbol_of(size: torch.SymInt) -> sympy.Expr:
    """Return the symbol that a symbolic size was made with.

    `SymNode._expr`, torch 2.10 to 2.14: the public `expr` is what the environment has put in the
    symbol's place since.
    """
    return size.node._expr


def trace_artifact(name: str, text: Callable[[], str]) -> None:
    """Leave a text in the structured trace of torch, beside those of the compilation at hand.

    `torch._logging.trace_structured`, torch 2.10 to 2.14: what `TORCH_TRACE` switches on and
    tlparse shows; there is no public name. `text` is called only where somebody traces, and at the
    first event of a process, after which torch's handler takes itself away.
    """
    torch._logging.trace_structured(  # type: ignore[attr-defined]  # not in its __all__
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "string"},
        payload_fn=text,
        # A pipeline may run outside of any compilation.
        expect_trace_id=False,
    )


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """Return AOTAutograd as a backend of torch.compile.

    `torch._dynamo.backends.common.aot_autograd`, torch 2.10 to 2.14: how torch's own backends are
    made, with its parameters; there is no public name.
    """
    # It takes seconds to import, and rules do without.
    from torch._dynamo.backends.common import aot_autograd as make_backend  # noqa: PLC0415

    return make_backend(**compilers)
