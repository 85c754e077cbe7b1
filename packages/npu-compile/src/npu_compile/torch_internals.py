"""The private names of torch that this package stands on; nothing else of it does.

Each has a line that says in which versions of torch it is, and why it is needed.
"""

# ruff: noqa: SLF001 - this file is their place

from __future__ import annotations

import torch

# torch 2.10 to 2.14: what Dynamo makes of an error of a backend; the error itself is inside it.
# torch 2.10 to 2.14: what Dynamo raises where a model is not one graph.
from torch._dynamo.exc import BackendCompilerFailed, Unsupported

__all__ = ["BackendCompilerFailed", "Unsupported", "mark_dynamic"]


def mark_dynamic(tensor: torch.Tensor, dimension: int) -> None:
    """Let the size of a dimension be a symbol in graphs of Dynamo.

    `torch._dynamo.mark_dynamic`, torch 2.10 to 2.14: documented, and public by no other name.
    """
    torch._dynamo.mark_dynamic(tensor, dimension)


def schema_of(target: object) -> torch.FunctionSchema | None:
    """Return the schema of an operator, ``None`` of anything else: `_schema`, torch 2.10 to 2.14.

    There is no public road to it.
    """
    return target._schema if isinstance(target, torch._ops.OpOverload) else None
