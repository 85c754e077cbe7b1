"""Calls a model through Dynamo, with separate compilations and the caller's dynamic sizes."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from npu_compile.errors import ConfigError
from npu_compile.torch_internals import mark_dynamic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def signature_with(
    model: Callable[..., Any], dynamic_dims: Mapping[str, Sequence[int]]
) -> inspect.Signature:
    """Return the signature of a model, after checking that it has the given dynamic arguments.

    Raises:
        ConfigError: The model has no argument of a name.
    """
    signature = inspect.signature(getattr(model, "forward", model))
    for name in dynamic_dims:
        if name not in signature.parameters:
            raise ConfigError(
                f"compiling {name_of(model)}: dynamic_arg_dims names {name!r}, the model takes "
                f"{', '.join(signature.parameters)}"
            )
    return signature


def name_of(model: Callable[..., Any]) -> str:
    """Return the name of a model for messages."""
    return str(getattr(model, "__name__", type(model).__name__))


def mark_dynamic_dims(
    arguments: Mapping[str, object], dynamic_dims: Mapping[str, Sequence[int]]
) -> None:
    """Mark the sizes of a call's arguments that change between calls as dynamic."""
    for name, dims in dynamic_dims.items():
        tensor = arguments.get(name)
        if isinstance(tensor, torch.Tensor):
            for dim in dims:
                # Dynamo fixes sizes 0 and 1 and refuses them where a dynamic size is demanded;
                # such a call gets a graph of its own.
                if tensor.shape[dim] > 1:
                    mark_dynamic(tensor, dim)


def behind_dynamo(model: Callable[..., Any], backend: Callable[..., Any]) -> Callable[..., Any]:
    """Return the model compiled by Dynamo, sharing no compilations with others."""
    return torch.compile(call_of(model), backend=backend, fullgraph=True, dynamic=False)


def call_of(model: Callable[..., Any]) -> types.FunctionType:
    """Return a function that calls the model and has its own code object.

    Dynamo stores compiled graphs, and limits their number, by code object. Functions with the same
    code would share both, so each gets a copy.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return types.FunctionType(
        forward.__code__.replace(),
        forward.__globals__,
        forward.__name__,
        forward.__defaults__,
        forward.__closure__,
    )
