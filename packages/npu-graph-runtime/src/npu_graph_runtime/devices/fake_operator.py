"""Reads properties of an operator from its schema and the dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.torch_internals import given_arguments, has_kernel, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Their results hold arbitrary values until something writes them.
UNWRITTEN = frozenset(
    {"aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided"}
    | {"aten::new_empty_strided", "aten::empty_permuted"}
)


def schema_name(func: Any) -> str:
    """Return the qualified name without the overload, such as ``aten::add``."""
    name: str = schema_of(func).name
    return name


def is_composite(func: Any) -> bool:
    """Return whether an operator is composed of others, without a kernel of its own.

    Torch decomposes such operators before a dispatch mode sees them, except in inference mode.
    """
    return has_kernel(func, "CompositeImplicitAutograd") and not has_kernel(func, "CPU")


def has_known_shape(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the shapes of the results follow from those of the arguments.

    Also true for two operators whose tag says otherwise: indexing by integers, and repetition into
    an output of a given size. The device captures both.
    """
    if torch.Tag.dynamic_output_shape not in func.tags:
        return True
    given = {argument.name: value for argument, value in given_arguments(func, args, kwargs)}
    if schema_name(func) == "aten::index":
        masks = {torch.bool, torch.uint8}
        return not any(index.dtype in masks for _, index in tensor_leaves(given["indices"], ""))
    return schema_name(func) == "aten::repeat_interleave" and given.get("output_size") is not None


def written_arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """Return the tensors that an operator writes."""
    return [
        tensor
        for argument, value in given_arguments(func, args, kwargs)
        if argument.alias_info is not None and argument.alias_info.is_write
        for _, tensor in tensor_leaves(value, "")
    ]


def returned_arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[object] | None:
    """Return the results of an operator that returns only what it writes, or ``None``.

    Such an operator need not run to be recorded. An empty ``out`` argument would be resized by the
    run, so an operator with one does not count.
    """
    written = {
        frozenset(argument.alias_info.before_set): value
        for argument, value in given_arguments(func, args, kwargs)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    if not written or any(t.numel() == 0 for _, t in tensor_leaves(list(written.values()), "")):
        return None
    results: list[object] = []
    for returned in schema_of(func).returns:
        alias = returned.alias_info
        if alias is None or frozenset(alias.before_set) not in written:
            return None
        results.append(written[frozenset(alias.before_set)])
    return results
